"""Base classes of networks: checked settings, training objectives, parts of a trace."""

import json
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_type_hints

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from capsviz.discovery import parameters, require_known, unknown
from capsviz.nn import decoders, functional, models, routing
from capsviz.nn.capsule_layer import CapsuleLayer, by_iteration
from capsviz.nn.children import WITH_LOGITS, Capsules
from capsviz.nn.computation import channels_last, seeded
from capsviz.nn.functional import multi_hot, reconstruction_loss
from capsviz.nn.images import require_shape
from capsviz.nn.models import Objective, Output, Scores
from capsviz.nn.quantity import ALONG_POSE
from capsviz.nn.routing import Parents
from capsviz.validation import check

INSIDE_ROUTING = {"votes", "logits", "couplings", "weights", "evidence", "poses"}  # need votes
CONFIG, WEIGHTS = "config.json", "model.safetensors"  # names on the Hugging Face Hub


def settings_from(kind: type, image_shape, classes: int, options: dict):
    """Return the `Config` of a network's file for the arguments of `build`.

    ValueError for an unknown option, or a value that does not fit the type of its field.
    """
    known = get_type_hints(kind, include_extras=True)
    del known["image_shape"], known["classes"]
    if len(image_shape) != 3:
        raise ValueError(
            f"networks of capsviz take images (C, H, W), got the shape {tuple(image_shape)}"
        )
    if classes < 2:
        raise ValueError(f"a classifier needs at least 2 classes, got {classes}")
    if strange := sorted(set(options) - set(known)):
        name = kind.__module__.rpartition(".")[2]
        raise ValueError(unknown(f"{name} option", strange[0], sorted(known)))
    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    for option, value in options.items():
        check(option, value, known[option])
    return kind(image_shape=tuple(image_shape), classes=classes, **options)


def routing_values(config, options: dict) -> dict:
    """Return the defaults that depend on the routing: its iterations and objective."""
    module = routing.get(config.routing)
    values: dict[str, Any] = {}
    if "iterations" not in options and "iterations" not in parameters(module.route):
        values["iterations"] = 1
    if config.objective == "auto":
        values["objective"] = getattr(module, "OBJECTIVE", "margin")
    return values


class Network(nn.Module):
    """A network defined by its `settings`, the frozen dataclass `Config` of its file.

    `save_pretrained` uses the folder layout of the Hugging Face Hub. `capsviz.save` also writes the
    data set and how the network was trained.
    """

    settings: Any

    @property
    def whole_batches(self) -> bool:
        """Return whether batch norm forbids computing a batch in parts."""
        return any(isinstance(module, nn.BatchNorm2d | nn.BatchNorm1d) for module in self.modules())

    @property
    def config(self) -> dict:
        """Return the arguments of `build` that make this network, as plain data for a card."""
        return asdict(self.settings)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write the network into a folder, created if missing."""
        from safetensors.torch import save_model

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
                 repository on the Hub, which needs `pip install huggingface_hub`.
        options  of `huggingface_hub.snapshot_download`, e.g. `revision`.

        Raises
        ------
        ValueError  if a file is missing or damaged, if the network is of another class, or if the
                    package or the repository is missing.
        """
        from safetensors import SafetensorError
        from safetensors.torch import load_model

        folder = Path(name) if Path(name).is_dir() else _downloaded(str(name), options)
        for file in (CONFIG, WEIGHTS):
            if not (folder / file).is_file():
                there = ", ".join(sorted(one.name for one in folder.iterdir())) or "nothing"
                raise ValueError(f"{folder} has no {file}: found {there}; pickles are not opened")
        try:
            about = json.loads((folder / CONFIG).read_text("utf-8"))
            with seeded(0):  # leave the global random state unchanged
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
            f"{name} is not a folder, and a repository needs pip install huggingface_hub"
        ) from error
    try:
        return Path(snapshot_download(name, allow_patterns=[CONFIG, WEIGHTS], **options))
    except Exception as error:  # it raises errors of several packages
        reason = str(error).strip().partition("\n")[0][:200]
        raise ValueError(
            f"{name} is not a folder, and no repository was opened: {reason}"
        ) from error


class ClassPoses(Network):
    """A network of routed layers, the last of class capsules, and a `decoder` or None.

    A network with one routed layer also offers it as `capsules`.
    """

    decoder: decoders.Decoder | None

    @property
    def routed(self) -> Sequence[CapsuleLayer]:
        """Return the routed layers, from the images up."""
        raise NotImplementedError

    @property
    def activated(self) -> bool:
        """Return whether primary capsules have activations separate from their lengths."""
        return getattr(getattr(self, "to_capsules", None), "kind", "") in WITH_LOGITS

    def encode(self, images: Tensor) -> Capsules:
        """Return primary capsules (B, I, D), and activations if any, of images (B, C, H, W)."""
        raise NotImplementedError

    def forward(self, images: Tensor) -> Output:
        """Return lengths (B, J), poses (B, J, E) and primary capsules (B, I, D)."""
        primary, active = self.encode(images)
        poses, activations = self.from_children(primary, active, layer=0)
        return Output(activations, poses, primary)

    def from_children(
        self,
        children: Tensor,
        activations: Tensor | None = None,
        *,
        layer: int = -1,
        couplings=None,
    ) -> Parents:
        """Return class capsules from children (B, I, D) of a layer, which may be modified ones.

        `couplings` replace those of this layer alone. ValueError if `activations` are missing and
        are not the lengths of the children.
        """
        first = range(len(self.routed))[layer]
        if (
            activations is None
            and self.activated
            and "activations" in parameters(routing.get(self.routed[first].routing_name).route)
        ):
            raise ValueError(
                "the capsules of this network have separate activations: pass them too "
                "(trace.child_activations)"
            )
        parents = self.routed[first](children, activations, couplings)
        for above in self.routed[first + 1 :]:
            parents = above(*parents)
        return parents

    def look(
        self,
        images: Tensor,
        *,
        keep: Collection[str],
        layer: int = -1,
        couplings: Tensor | None = None,
        iterations: int | None = None,
    ) -> dict[str, Any]:
        """Run one forward pass for `capsviz.tracing` and return the parts of one routed layer.

        `couplings` and `iterations` change that layer alone. Votes are computed only for parts that
        need them.
        """
        number = range(len(self.routed))[layer]
        capsules = self.routed[number]
        children, active = self.encode(images)
        for below in self.routed[:number]:
            children, active = below(children, active)
        active = functional.lengths(children) if active is None else active
        parts: dict[str, Any] = {"primary": children, "child_activations": active}
        if couplings is None and iterations is None and not INSIDE_ROUTING & set(keep):
            parents = capsules.couple(children, active)
            parts["lengths"] = parents.activations
        else:
            votes, routed = capsules.route(
                children, active, couplings=couplings, iterations=iterations
            )
            parents = Parents(routed.poses[-1], routed.activations[-1])
            parts |= {"votes": votes, **routed._asdict(), "lengths": parents.activations}
            if (weights := capsules.weights(routed.couplings, active)) is not None:
                parts["weights"] = weights
            if "evidence" in keep and hasattr(routing.get(capsules.routing_name), "evidence"):
                parts["evidence"] = by_iteration(capsules.evidence, votes, routed, active)
                own = {*getattr(routing.get(capsules.routing_name), "OF_CLASSES", ())}
                known = own <= {*capsules.learned}  # hidden layers lack some parameters
                name = capsules.routing_name
                parts["quantity"] = routing.quantity(name) if known else ALONG_POSE
        if capsules.links is not None:
            parts["links"] = capsules.links
        if self.decoder is not None and "reconstruction" in keep:
            parents = capsules.by_type(*parents)
            if capsules is not self.routed[-1]:
                parents = self.from_children(*parents, layer=number + 1)
            classes = functional.predict(parents.activations)
            parts["reconstruction"] = self.decode(parents.poses, classes)
        return parts

    @property
    def grid(self) -> tuple[int, int, int]:
        """Return (types, rows, columns) of the last layer's children.

        Child i = (type * rows + row) * columns + column.
        """
        return self.routed[-1].child_grid

    def build_decoder(self, numbers: int) -> decoders.Decoder | None:
        """Return the decoder of the settings, or None, for poses of `numbers` entries."""
        c = self.settings
        if c.reconstruction_weight <= 0:
            return None
        sizes = {"hidden": c.hidden} if c.decoder == "fully_connected" else {}
        shape = (c.classes, numbers, c.image_shape)
        return decoders.Decoder(c.decoder, *shape, norm=c.decoder_norm, **sizes)

    def decode(self, poses: Tensor, classes: Tensor) -> Tensor:
        """Reconstruct images (B, C, H, W) in [0, 1] from the poses (B, J, E) of `classes` (B,)."""
        if self.decoder is None:
            raise ValueError("this network was built without a decoder (reconstruction_weight 0)")
        return self.decoder(poses, classes)

    def objective(
        self,
        output: Output,
        images: Tensor,
        labels: Tensor,
        reconstruction_factor: float = 1.0,
        progress: float = 1.0,
    ) -> Objective:
        """Return the classification loss plus the weighted reconstruction loss of the true class.

        Parameters are those of every network (`capsviz.nn.models`). If an image shows K objects,
        each is decoded from its class, and their losses are averaged. ValueError for labels that
        are not class numbers, or without one image to reconstruct for each label.
        """
        c = self.settings
        loss = functional.objective(
            c.objective,
            output.lengths,
            multi_hot(labels, c.classes),
            progress=progress,
            present=c.margin_present,
            absent=c.margin_absent,
            down_weight=c.absent_weight,
        )
        if self.decoder is None or output.poses is None:
            return Objective(loss.mean())
        distance = self._distance(output.poses, images, labels)
        weight = c.reconstruction_weight * reconstruction_factor
        return Objective((loss + weight * distance).mean(), distance)

    def _distance(self, poses: Tensor, images: Tensor, labels: Tensor) -> Tensor:
        """Return the reconstruction loss (B,), a mean over the objects of an image."""
        if images.shape[:-3] != labels.shape:
            raise ValueError(
                f"expected one image (C, H, W) to reconstruct for each label {tuple(labels.shape)}"
                f", got images {tuple(images.shape)}"
            )
        metric = self.settings.reconstruction_metric
        if labels.dim() == 1:
            return reconstruction_loss(images, self.decode(poses, labels), metric)
        # all objects at once, so that batch norm sees one batch
        reconstructions = self.decode(poses.repeat_interleave(labels.shape[1], 0), labels.flatten())
        each = reconstruction_loss(images.flatten(0, 1), reconstructions, metric)
        return each.view(labels.shape).mean(1)


def require_class_poses(settings) -> None:
    """Raise ValueError for margins out of range or unused, or an unknown decoder."""
    if not 0 <= settings.margin_absent < settings.margin_present <= 1:
        raise ValueError(
            "expected 0 <= margin_absent < margin_present <= 1, "
            f"got {settings.margin_absent} and {settings.margin_present}"
        )
    require_known("decoder", settings.decoder, decoders.available())
    margin = settings.objective == "margin"
    for option in ("margin_present", "margin_absent", "absent_weight"):
        require_used(settings, option, margin, f"on the objective '{settings.objective}'")


def require_used(settings, option: str, used: bool, where: str) -> None:
    """Raise ValueError for a setting that is not the default but is not `used`."""
    if (
        not used
        and getattr(settings, option) != type(settings).__dataclass_fields__[option].default
    ):
        raise ValueError(f"{option} has no effect {where}: drop it")


class Classifier(Network):
    """A network without capsules; a softmax turns its `scores` into probabilities."""

    width: int  # estimate of the most numbers stored for each pixel

    def __init__(self, kind: type, image_shape, classes: int, options: dict):
        super().__init__()
        self.settings = settings_from(kind, image_shape, classes, options)

    def scores(self, images: Tensor) -> Tensor:
        """Return logits (B, J) of images (B, C, H, W)."""
        raise NotImplementedError

    @property
    def image_bytes(self) -> int:
        """Estimate the peak memory of one image in a forward and backward pass, in bytes."""
        _, height, width = self.settings.image_shape
        return 4 * 4 * self.width * height * width

    def forward(self, images: Tensor) -> Scores:
        """Return probabilities and logits (B, J), in float32 at least."""
        require_shape(images, self.settings.image_shape)
        logits = self.scores(channels_last(images))
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        return Scores(logits.softmax(1), logits)

    def objective(
        self, output: Scores, images: Tensor, labels: Tensor, reconstruction_factor: float = 1.0
    ) -> Objective:
        """Return the cross entropy. For labels (B, K), the target of each of K classes is 1/K.

        ValueError for labels that are not class numbers.
        """
        present = multi_hot(labels, output.logits.shape[1]).to(output.logits.dtype)
        shares = labels if labels.dim() == 1 else present / present.sum(1, keepdim=True)
        return Objective(cross_entropy(output.logits, shares))


class PlainClassifier(Classifier):
    """A classifier without batch norm, so that a batch may be computed in parts."""

    def training_bytes(self, batch: int) -> int:
        """Estimate the peak memory of training in bytes: weights, gradients, Adam and a step."""
        return 16 * sum(p.numel() for p in self.parameters()) + batch * self.image_bytes
