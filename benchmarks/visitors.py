"""Simulate visitors of `capsviz explore`: each opens the page, and moves a slider now and then.

    capsviz explore --no-browser --port 7860
    python -m benchmarks.visitors http://127.0.0.1:7860/ --visitors 200 --seconds 60

Prints how many requests failed, and how long the others took. No browser runs: what the server
computes and sends is measured.
"""

import asyncio
import random
import time

import click
import numpy as np

PATIENCE_S = 60  # without an answer, a request has failed
PAUSE_S = 4.0  # between two changes of a visitor, on average


def events(config: dict) -> tuple[dict, dict]:
    """Return the event that opens the page, and the one that a control's change starts."""
    of = {kind: [one for one in config["dependencies"] if one["targets"][0][1] == kind]
          for kind in ("load", "change")}  # fmt: skip
    return of["load"][0], max(of["change"], key=lambda one: len(one["targets"]))


async def visit(client, seconds: float, taken: list[float], failed: list[str]) -> None:
    """Open the page, and change its angle until the time is over."""
    await asyncio.sleep(random.uniform(0, PAUSE_S))
    end, session = time.monotonic() + seconds, f"visitor{random.random()}"

    async def ask(what: str, path: str, **how):
        start = time.monotonic()
        try:
            answer = await client.request("POST" if how else "GET", path, **how)
            if answer.status_code != 200 or (how and "cv-" not in answer.text):
                failed.append(f"{what}: {answer.status_code} {answer.text[:80]}")
            taken.append(time.monotonic() - start)
            return answer
        except Exception as error:
            failed.append(f"{what}: {type(error).__name__}")
            raise

    await ask("page", "")
    config = (await ask("config", "config")).json()
    usual = {one["id"]: one["props"].get("value") for one in config["components"]}
    (angle,) = (
        one["id"] for one in config["components"] if one["props"].get("elem_id") == "warp-angle"
    )
    event, change = events(config)
    while time.monotonic() < end:
        data = [usual[k] for k in event["inputs"]]
        body = {"data": data, "fn_index": event["id"], "session_hash": session}
        await ask("change", "gradio_api/run/predict", json=body)
        event, usual[angle] = change, random.randint(-180, 180)
        await asyncio.sleep(random.uniform(0, 2 * PAUSE_S))


@click.command(help=__doc__.partition("\n")[0])
@click.argument("address")
@click.option("--visitors", default=200, show_default=True)
@click.option("--seconds", default=60.0, show_default=True)
def command(address: str, visitors: int, seconds: float) -> None:
    """Let all visitors come, and print what they met."""
    taken: list[float] = []
    failed: list[str] = []

    async def all_of_them():
        import httpx  # comes with Gradio

        limits = httpx.Limits(max_connections=None, keepalive_expiry=2)  # before the server's
        async with httpx.AsyncClient(base_url=address, timeout=PATIENCE_S, limits=limits) as client:
            each = (visit(client, seconds, taken, failed) for _ in range(visitors))
            await asyncio.gather(*each, return_exceptions=True)

    asyncio.run(all_of_them())
    middle, late = np.percentile(taken, [50, 95])
    click.echo(
        f"{visitors} visitors, {len(taken)} answers: median {middle:.2f} s, 95 % {late:.2f} s"
    )
    click.echo(f"{len(failed)} failed {sorted(set(failed))[:5]}")


if __name__ == "__main__":
    command()
