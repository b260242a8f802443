"""Claims of the tables that `capsviz reproduce` makes anew."""

from benchmarks.claims.claim import DESCRIPTION, Claim, Missing
from capsviz import discovery
from capsviz.experiments import reproductions
from capsviz.experiments.gathering import MEASURES, gather

FOLDER = "trained/reproduce"


def rows():
    """Every row that is shipped: its test error beside the published one."""
    for name in reproductions.available():
        try:
            table = gather(name, discovery.folder("capsviz.trained") / "reproduce")
        except ValueError:
            yield Missing(f"Table `{name}`", f"{FOLDER}/*")
            continue
        labels = len(table.header) - len(MEASURES)
        for row in table.rows:
            title = f"`{name}`, " + ", ".join(
                f"{what.lower()} {value}"
                for what, value in zip(table.header[:labels], row[:labels], strict=True)
            )
            values = dict(zip(MEASURES, row[labels:], strict=True))
            if values["Seeds"] == "not run":
                yield Missing(f"Table {title}", f"{FOLDER}/*")
                continue
            published = values["Published"]
            yield Claim(
                f"Table {title}: test error {values['Test error %'].split()[0]} % after "
                f"{values['Epochs']} epochs.",
                f"{values['Test error %']} %{_of_seeds(values['Test error %'])}",
                FOLDER,
                "the cards of its runs",
                DESCRIPTION if published == "–" else f"published {published}",
                values["Seeds"],
                "more seeds; rows of one seed whose intervals overlap are not ordered by them, nor "
                "is a published error of longer training reached or missed",
            )


def _of_seeds(error: str) -> str:
    """What stands after a ±, where there is one."""
    return ", standard deviation over the seeds" if "±" in error else ""
