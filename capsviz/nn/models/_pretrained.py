"""Networks in folders of config.json and model.safetensors, as Hugging Face's hub has them.

`capsviz.save` writes more: what the network is of, and how it was trained.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

CONFIG, WEIGHTS = "config.json", "model.safetensors"


class Pretrained(nn.Module):
    """What `huggingface_hub.PyTorchModelHubMixin` offers, for networks with a `config`."""

    config: Any

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network into a folder, which is made."""
        from safetensors.torch import save_model

        from capsviz.nn import models

        Path(folder).mkdir(parents=True, exist_ok=True)
        about = {"name": models.name_for(self), "config": self.config}
        Path(folder, CONFIG).write_text(json.dumps(about, indent=1) + "\n", "utf-8")
        save_model(self, str(Path(folder, WEIGHTS)))

    @classmethod
    def from_pretrained(cls, name: str | Path, **options):
        """Load a network, in evaluation mode.

        Parameters
        ----------
        name     a folder that `save_pretrained` or `capsviz export --to folder` wrote, or a
                 repository of the hub, which needs `pip install huggingface_hub`.
        options  of `huggingface_hub.snapshot_download`, as `revision`.

        Raises
        ------
        ValueError  if a file is missing or damaged, for another class of network, or without the
                    package or the repository.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_model

        from capsviz.nn import models

        folder = Path(name) if Path(name).is_dir() else _downloaded(str(name), options)
        for file in (CONFIG, WEIGHTS):
            if not (folder / file).is_file():
                there = ", ".join(sorted(one.name for one in folder.iterdir())) or "nothing"
                raise ValueError(f"{folder} has no {file}: found {there}; pickles are not opened")
        try:
            about = json.loads((folder / CONFIG).read_text("utf-8"))
            model = models.of_config(about["name"], about["config"])
            if isinstance(model, cls):
                load_model(model, str(folder / WEIGHTS))
        except (KeyError, TypeError, ValueError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{folder} holds no network of capsviz: {reason}") from error
        if not isinstance(model, cls):
            found = type(model).__name__
            raise ValueError(f"{folder} holds a {found}, not a {cls.__name__}")
        return model.eval()


def _downloaded(name: str, options: dict) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError as error:
        raise ValueError(
            f"{name} is no folder, and a repository needs pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **options))
    except Exception as error:  # it raises errors of several packages
        reason = str(error).strip().partition("\n")[0][:200]
        raise ValueError(f"{name} is no folder, and no repository was opened: {reason}") from error
