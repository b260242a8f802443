"""`capsviz.wrap` finds by itself what is inside networks in the layouts of public code."""

import sys
import warnings

import pytest
import torch
from helpers import public_layouts as zoo
from helpers.public_layouts import CLASSES, EM, SHAPE, E, I, J, expected
from torch.nn import functional

import capsviz
from capsviz.tracing import verification
from capsviz.wrapping import NoCapsulesError, Wrapped, without_cuda

DYNAMIC = [zoo.Unsqueezed, zoo.ParentsFirst, zoo.Einsum]
SMALL = {"image_shape": SHAPE, "classes": CLASSES}
images = zoo.images


def wrapped(network, **options):
    network = network() if isinstance(network, type) else network
    return capsviz.wrap(network.eval(), **SMALL, **options)


def output_of(net, images):
    """What a network says by itself, the GPU that is written into it left aside."""
    with without_cuda():
        return net(images)


def close(a, b, atol=2e-6):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


@pytest.mark.parametrize("kind", DYNAMIC)
def test_a_trace_is_what_the_routing_loop_does(kind, images):
    net = wrapped(kind)
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        for name, value in expected(net.network, images).items():
            close(getattr(seen, name), value, 1e-5)
    assert seen.grid == (2, 4, 3)
    assert net.receptive_field(1, 2) == (slice(2, 7), slice(4, 9))


@pytest.mark.parametrize("kind", DYNAMIC)
def test_couplings_put_in_do_what_the_loop_does_with_them(kind, images):
    net = wrapped(kind)
    for shape in ((24, 3), (5, 24, 3)):
        given = torch.rand(shape, generator=torch.Generator().manual_seed(1)).softmax(-1)
        seen = capsviz.trace(net, images, couplings=given)
        with torch.no_grad():
            other = expected(net.network, images, couplings=given)
        close(seen.poses, other["poses"], 1e-5)
        close(seen.couplings, other["couplings"])


def test_the_number_of_iterations_can_be_set_where_an_attribute_sets_it(images):
    net = wrapped(zoo.Unsqueezed)
    for rounds in (1, 5):
        seen = capsviz.trace(net, images, iterations=rounds)
        with torch.no_grad():
            close(seen.poses, expected(net.network, images, iterations=rounds)["poses"], 1e-5)
    assert net.network.digits.routings == 3


@pytest.mark.parametrize("kind", [zoo.Unsqueezed, zoo.Attention])
def test_a_decoder_inside_the_pass_decodes_any_pose(kind, images):
    net = wrapped(kind)
    poses = torch.rand(9, 3, 6)
    classes = torch.arange(9) % 3
    kept = poses * torch.nn.functional.one_hot(classes, 3)[..., None]
    if kind is zoo.Attention:  # decodes the winner alone
        kept = torch.nn.functional.pad(poses[torch.arange(9), classes], (0, 12))
    with torch.no_grad():
        made = net.decode(poses, classes)
        close(made, torch.sigmoid(net.network.fc(kept.flatten(1))).view(9, *SHAPE))
        output = output_of(net.network, images)[1].view(-1, *SHAPE)
    close(capsviz.trace(net, images).reconstruction, output)


def assigned_one_by_one(v, hot):
    kept = torch.zeros(v.shape)
    for k, winner in enumerate(hot.argmax(1).tolist()):
        kept[k, winner] = v[k, winner]
    return kept


def scattered(v, hot):
    index = hot.argmax(1).view(-1, 1, 1).expand(-1, 1, v.shape[2])
    return torch.zeros_like(v).scatter_(1, index, v.gather(1, index))


def zeroed(v, hot):
    kept = v.clone()
    kept[hot == 0] = 0
    return kept


MASKS = {
    "assigned one by one": assigned_one_by_one,
    "scattered": scattered,
    "zeroed": zeroed,
    "put": lambda v, hot: torch.zeros_like(v).index_put(
        (torch.arange(len(v)), hot.argmax(1)), v[hot > 0]
    ),
    "stacked": lambda v, hot: torch.stack(
        [one * own[:, None] for one, own in zip(v, hot, strict=True)]
    ),
    "where": lambda v, hot: torch.where(hot[..., None] > 0, v, torch.zeros(())),
    "einsum": lambda v, hot: torch.einsum("bje,bj->bje", v, hot),
    "in place": lambda v, hot: v.mul_(hot[..., None]),
}


SOFTMAXES = {
    "two exponentials": lambda b: torch.exp(b) / torch.sum(torch.exp(b), dim=2, keepdim=True),
    "a sum that is not 0": lambda b: b.exp() / (b.exp().sum(2, keepdim=True) + 1e-9),
    "the same exponential": lambda b: (
        (e := (b - b.amax(2, keepdim=True)).exp()) / e.sum(2).unsqueeze(2).clamp(min=1e-9)
    ),
    "its logarithm": lambda b: b.log_softmax(2).exp(),
    "logsumexp": lambda b: (b - b.logsumexp(2, keepdim=True)).exp(),
}


def factor(s):
    """(B, J), what a squash multiplies with."""
    n2 = s.square().sum(-1)
    return n2 / (1 + n2) / (n2 + 1e-12).sqrt()


def expanded(s):
    n = s.norm(dim=-1, keepdim=True).expand_as(s)
    return n**2 / (1 + n**2) * s / n


def put_out(s):
    result = torch.empty_like(s)
    torch.mul(s, factor(s)[..., None], out=result)
    return result


def by_index(s):
    result = torch.zeros_like(s)
    for j in range(J):
        result[:, j] = zoo.squash(s[:, j])
    return result


def to_be_scripted(s: torch.Tensor):
    n2 = (s * s).sum(-1, keepdim=True)
    return s * n2 / (1 + n2) / torch.sqrt(n2 + 1e-12)


def scripted(s):
    with warnings.catch_warnings(action="ignore"):  # deprecated, and in public code
        return torch.jit.script(to_be_scripted)(s)


SQUASHES = {
    "expanded": expanded,
    "einsum": lambda s: torch.einsum("bj,bje->bje", factor(s), s),
    "diagonal": lambda s: torch.bmm(torch.diag_embed(factor(s)), s),
    "out": put_out,
    "class by class": lambda s: torch.stack([zoo.squash(s[:, j]) for j in range(J)], 1),
    "chunks": lambda s: torch.cat([zoo.squash(part) for part in s.chunk(J, 1)], 1),
    "by index": by_index,
    "scripted": scripted,
    "vmap": lambda s: torch.vmap(zoo.squash)(s),
}


WAYS = {"squashed": SQUASHES, "softmax": SOFTMAXES, "masked": MASKS}


class Written(zoo.Base):
    """Returns (lengths, images); its squash, softmax and mask are written in several ways."""

    def __init__(self, **ways):
        super().__init__()
        self.squashed, self.softmax = zoo.squash, lambda b: b.softmax(2)
        self.masked = lambda v, hot: hot[..., None] * v
        vars(self).update(ways)

    def forward(self, x):
        votes, b = self.votes(self.encode(x)), torch.zeros(len(x), I, J)
        for k in range(self.iterations):
            v = self.squashed((self.softmax(b)[..., None] * votes).sum(1))
            if k < self.iterations - 1:
                b = b + (votes * v[:, None]).sum(-1)
        length = v.norm(dim=2)
        return length, self.drawn(v, length)

    def votes(self, u):
        return torch.einsum("ijed,bid->bije", self.W, u)

    def drawn(self, v, length):
        kept = self.masked(v, functional.one_hot(length.argmax(1), J).float())
        return self.decoded(kept).view(-1, *SHAPE)


@pytest.mark.parametrize(("part", "name"), [(part, name) for part in WAYS for name in WAYS[part]])
def test_routing_and_decoder_are_found_however_they_are_written(part, name, images):
    net = wrapped(Written(**{part: WAYS[part][name]}))
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        own = expected(net.network, images)
        close(seen.reconstruction, net.network(images)[1], 1e-5)
    close(seen.poses, own["poses"], 1e-5)
    close(seen.couplings, own["couplings"])
    if part != "softmax" or "log" in name:
        close(seen.logits, own["logits"], 1e-5)
    uniform = capsviz.trace(net, images, couplings="uniform")
    close(uniform.poses[-1], zoo.squash(seen.votes.mean(1) * I / J), 1e-5)
    assert net.peculiar == {}


def of_batch_norm(s):
    mean, variance = torch.linspace(-1, 1, J * E), torch.linspace(0.5, 1.5, J * E)
    return zoo.squash(functional.batch_norm(s.flatten(1), mean, variance).view(-1, J, E))


LINEAR = torch.randn(E, E, generator=torch.Generator().manual_seed(2))
FUNCTIONS = {  # of the sum, which change its direction
    "squash of each number": lambda s: s * s.abs() / (1 + s * s) / E,
    "softmax": lambda s: s.softmax(2),
    "linear": lambda s: functional.linear(s, LINEAR).tanh() / E,
    "squash of linear": lambda s: zoo.squash(functional.linear(s, LINEAR)),
    "fewer numbers": lambda s: zoo.squash(functional.linear(s, LINEAR[:4])),
    "MLP": lambda s: zoo.squash((s @ LINEAR).relu() @ LINEAR),
    "one more number": lambda s: zoo.squash(torch.cat((s, torch.ones_like(s[..., :1])), 2)),
    "batch norm": of_batch_norm,
    "layer norm": lambda s: functional.layer_norm(s, (E,), LINEAR[0], LINEAR[1]) / 9,
    "tanh": lambda s: s.tanh() / E,
    "bias": lambda s: zoo.squash(s + torch.linspace(0.1, 0.2, E)),
}
RETURNS = {
    "poses": lambda v: v,
    "norms": lambda v: v.norm(dim=2),
    "both": lambda v: {"lengths": v.norm(dim=2), "poses": v},
    "softmax and poses": lambda v: (v.norm(dim=2).softmax(1), v),
    "saturated scores and poses": lambda v: (0 * v.norm(dim=2) + torch.eye(J)[1], v),
}


class OfTheSum(Written):
    """One function makes poses of the sum, another one the output of the poses."""

    faint = 1.0

    def poses(self, x):
        votes = self.faint * self.votes(self.encode(x))
        b = torch.zeros(len(x), I, J)
        for _ in range(self.iterations):
            s = (b.softmax(2)[..., None] * votes).sum(1)
            v = self.function(s)
            b = b + (votes * s[:, None]).sum(3)
        return v

    def forward(self, x):
        return self.returns(self.poses(x))


@pytest.mark.parametrize(
    ("function", "returns", "faint"),
    [(name, "both", 1.0) for name in FUNCTIONS]
    + [("MLP", name, 1.0) for name in RETURNS]
    + [("bias", name, 1e-9) for name in RETURNS],  # the same numbers for all images
)
def test_poses_are_found_whatever_makes_them_of_the_sum(function, returns, faint, images):
    ways = {"function": FUNCTIONS[function], "returns": RETURNS[returns], "faint": faint}
    net = wrapped(OfTheSum(**ways))
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        close(seen.poses[-1], net.network.poses(images), 1e-5)
        if "scores" in returns:
            close(seen.lengths, net.network(images)[0])
    assert len(seen.poses) == 3 and "in doubt" not in net.report()
    said = "a bias is added to the sum of the votes in the network, test_wrap.py:"
    assert (said in net.report()) == (function == "bias")


@pytest.mark.parametrize(
    ("function", "own"),
    [(name, "compared with the votes") for name in FUNCTIONS]
    + [(name, "compared with nothing") for name in ("MLP", "fewer numbers")],
)
def test_poses_that_are_neither_returned_nor_measured_are_compared_or_a_doubt(
    function, own, images
):
    class Fed(OfTheSum):
        def poses(self, x):
            votes, b = self.votes(self.encode(x)), torch.zeros(len(x), I, J)
            for _ in range(self.iterations):
                s = (b.softmax(2)[..., None] * votes).sum(1)
                v = self.function(s)
                n = min(E, v.shape[2])
                b = b + (votes[..., :n] * (v[:, None, ..., :n] if "votes" in own else 1)).sum(3)
            return v

    net = wrapped(Fed(function=FUNCTIONS[function], returns=lambda v: v.norm(dim=2).softmax(1)))
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        close(seen.poses[-1], net.network.poses(images), 1e-5)
    doubt = "in doubt: or made by sum in the network, test_wrap.py:" in net.report()
    assert doubt == ("nothing" in own)


def test_poses_that_are_made_of_more_than_the_sum_are_those_that_are_returned(images):
    class More(Written):
        def forward(self, x):
            votes = self.votes(self.encode(x))
            s = (votes.sum(3).softmax(2)[..., None] * votes).sum(1)
            v = zoo.squash(s + votes.sum(1))
            return {"scores": v.norm(dim=2).softmax(1), "poses": v}

    net = wrapped(More())
    with torch.no_grad():
        close(capsviz.trace(net, images).poses[-1], net.network(images)["poses"])
    assert "in doubt" not in net.report()


def routed(votes, b):
    """Poses of three iterations of dynamic routing."""
    made = []
    for _ in range(3):
        made.append(zoo.squash((b.softmax(2)[..., None] * votes).sum(1)))
        b = b + (votes * made[-1][:, None]).sum(-1)
    return made


class Residual(Written):
    """Scores are the norms of a pose that is half the votes' and half of the children's mean."""

    def poses(self, x):
        u = self.encode(x)
        last = routed(self.votes(u), torch.zeros(len(x), I, J))[-1]
        return (last + torch.tanh(u.mean(1).repeat(1, E)[:, None, :E])) / 2

    def forward(self, x):
        return self.poses(x).norm(dim=2)


class Stacked(Written):
    """Returns the poses of all iterations."""

    def poses(self, x):
        return torch.stack(routed(self.votes(self.encode(x)), torch.zeros(len(x), I, J)))

    def forward(self, x):
        return self.poses(x)


class Forbidden(Written):
    """The first child may not choose the first parent."""

    def poses(self, x):
        b = torch.zeros(len(x), I, J)
        b[:, 0, 0] = -torch.inf
        return routed(self.votes(self.encode(x)), b)[-1]

    def forward(self, x):
        return self.poses(x).norm(dim=2)


@pytest.mark.parametrize("kind", [Residual, Stacked, Forbidden])
def test_poses_are_those_that_the_scores_measure_and_of_the_last_iteration(kind, images):
    net = wrapped(kind)
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        poses = net.network.poses(images)
    poses = poses[-1] if poses.dim() == 4 else poses
    close(seen.poses[-1], poses, 1e-5)
    close(seen.lengths, poses.norm(dim=2), 1e-5)
    assert "in doubt" not in net.report()


class InPlace(Written):
    """Votes become what is summed, after they were agreed with."""

    changed = staticmethod(lambda votes, c: votes.mul_(c))

    def forward(self, x):
        return self.route(self.votes(self.encode(x)))

    def route(self, votes):
        b = torch.zeros(len(votes), I, J)
        for k in range(self.iterations):
            c = b.softmax(2)
            if k == self.iterations - 1:
                v = zoo.squash(self.changed(votes, c[..., None]).sum(1))
            else:
                v = zoo.squash((c[..., None] * votes).sum(1))
                b = b + (votes * v[:, None]).sum(3)
        return v.norm(dim=2), v


def view_written(votes, c):
    product = votes * c
    for j in range(J):
        votes[:, :, j].zero_()
    return product


WRITTEN = {
    "in place": InPlace.changed,
    "by out=": lambda votes, c: torch.mul(votes, c, out=votes),
    "by its view": view_written,
}


@pytest.mark.parametrize("changed", WRITTEN)
@pytest.mark.parametrize("votes", [None, "route:votes"])
def test_votes_that_are_written_to_later_are_those_that_were_weighed(changed, votes, images):
    net = wrapped(InPlace(changed=WRITTEN[changed]), votes=votes)
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        own = expected(net.network, images)
        other = expected(net.network, images, couplings=own["couplings"][-1].flip(2))
    moved = capsviz.trace(net, images, couplings=own["couplings"][-1].flip(2))
    for part in ("votes", "couplings", "poses"):
        close(getattr(seen, part), own[part], 1e-5)
        close(getattr(moved, part), other[part].expand_as(getattr(moved, part)), 1e-5)
    assert "in doubt" not in net.report()


def test_votes_by_hand_that_do_not_make_the_sum_are_a_doubt(images):
    class Twice(InPlace):
        def route(self, votes):
            halved = votes / 2
            return super().route(halved + halved)

    assert "in doubt: no tensor of the pass is" in wrapped(Twice(), votes="route:halved").report()


def sparsemax(b):
    ordered, count = b.sort(2, descending=True)[0], torch.arange(1, J + 1)
    over = ordered.cumsum(2) - 1
    size = (count * ordered > over).sum(2, keepdim=True)
    return (b - over.gather(2, size - 1) / size).clamp(min=0)


def transported(b):
    for _ in range(5):
        b = b - b.logsumexp(1, keepdim=True)
        b = b - b.logsumexp(2, keepdim=True)
    return b.exp()


def slots(b):
    c = b.softmax(2) + 1e-8
    return c / c.sum(1, keepdim=True)


def near(b):
    distance = 1 / (1 + (b - b.amax(2, keepdim=True)) ** 2)
    return distance / distance.sum(2, keepdim=True)


WEIGHINGS = {
    "sigmoid": (torch.sigmoid, "sigmoid"),
    "sparsemax": (sparsemax, "clamp"),
    "optimal transport": (transported, "softmax"),
    "slot attention": (slots, "softmax"),
    "k-means": (near, "div"),
}


@pytest.mark.parametrize("name", WEIGHINGS)
def test_votes_may_be_weighed_by_more_than_a_softmax(name, images):
    function, named = WEIGHINGS[name]
    network = Written(softmax=function)
    if named != "softmax":
        with pytest.raises(NoCapsulesError, match="another function of torch that makes them"):
            wrapped(network)
    net = wrapped(network, couplings=named)
    seen = capsviz.trace(net, images)
    b = torch.zeros(5, I, J)
    for _ in range(2):
        s = torch.einsum("bij,bije->bje", function(b), seen.votes)
        b = b + (seen.votes * zoo.squash(s)[:, None]).sum(3)
    close(seen.factors[-1], function(b), 1e-5)
    assert "couplings" in net.replaceable


class Tuples(zoo.Unsqueezed):
    def __init__(self):
        super().__init__()
        self.digits = Several(self.W, self.iterations)

    def forward(self, x):
        return self.digits(self.encode(x))["poses"].norm(dim=-1)


class Several(zoo.Layer):
    def forward(self, u):
        poses = super().forward(u)
        return {"poses": poses, "doubled": 2 * poses, "norms": poses.norm(dim=2).sum(1)}


def test_a_module_that_gives_several_tensors_is_named_with_one_of_them(images):
    seen = capsviz.trace(wrapped(Tuples, poses="digits['poses']"), images)
    close(seen.poses[-1].norm(dim=2), seen.lengths)
    with pytest.raises(ValueError, match=r"'digits\['doubled'\]' .* found it in 2: name that one"):
        wrapped(Tuples, poses="digits")


def test_poses_of_a_module_are_those_that_it_gave_whatever_is_written_to_them_later(images):
    class Masked(zoo.Unsqueezed):
        def forward(self, x):
            v = self.digits(self.encode(x))
            length = v.norm(dim=-1)
            v *= functional.one_hot(length.argmax(1), J)[..., None]
            return length

    seen = capsviz.trace(wrapped(Masked, poses="digits"), images)
    assert (seen.poses[-1].norm(dim=2) > 0).all()


def test_where_scores_are_no_norms_poses_are_the_last_that_are_parallel_to_the_sum(images):
    class Softmax(Written):
        def forward(self, x):
            return super().forward(x)[0].softmax(1)

    net = wrapped(Softmax(squashed=SQUASHES["einsum"]))
    with torch.no_grad():
        close(capsviz.trace(net, images).poses, expected(net.network, images)["poses"], 1e-5)


def test_a_norm_behind_a_view_of_matrices_gives_the_poses(images):
    class Matrices(Written):
        def forward(self, x):
            votes = self.votes(self.encode(x)).unflatten(3, (2, 3))
            c = votes.sum((3, 4)).softmax(2)
            total = torch.einsum("bij,bijxy->bjxy", c, votes).view(len(x), J, E)
            return functional.layer_norm(total, (E,)).sum(2).sigmoid()

    seen = capsviz.trace(wrapped(Matrices()), images)
    total = torch.einsum("bij,bije->bje", seen.couplings[-1], seen.votes)
    close(seen.poses[-1], functional.layer_norm(total, (E,)), 1e-5)


def test_a_pose_that_is_the_same_class_s_for_all_images_is_none_that_is_chosen(images):
    class Chunks(Written):
        def drawn(self, v, length):
            parts = v.chunk(J, 1)
            return self.decoded(torch.cat([2 * parts[0], *parts[1:]], 1)).view(-1, *SHAPE)

    assert wrapped(Chunks()).decoder is None


class OfEachChild(Written):
    def __init__(self):
        super().__init__()
        self.each = torch.nn.ModuleList(torch.nn.Linear(4, J * E, bias=False) for _ in range(I))

    def votes(self, u):
        return torch.stack([f(u[:, i]).view(-1, J, E) for i, f in enumerate(self.each)], 1)


def test_votes_of_several_products_have_no_children_that_are_seen(images):
    net = wrapped(OfEachChild())
    assert "not found: votes are combined from several products" in net.report()
    seen = capsviz.trace(net, images)
    assert seen.children is None and seen.grid == (2, 4, 3)
    with torch.no_grad():
        close(seen.votes, net.network.votes(net.network.encode(images)))


AFTER = {  # what a network may learn beside its matrices
    "one number": lambda votes: votes * torch.full((1,), 1.5),
    "a gate": lambda votes: torch.linspace(1, 2, I * J).view(I, J, 1) * votes,
    "a matrix": lambda votes: votes @ torch.linspace(-1, 1, E * E).view(E, E).cos(),
    "a product": lambda votes: torch.einsum("bije,ef->bijf", votes, torch.ones(E, E).tril()),
}


@pytest.mark.parametrize("name", AFTER)
def test_children_are_before_all_that_differs_between_parents(name, images):
    class After(Written):
        def votes(self, u):
            return AFTER[name](super().votes(u))

    net = wrapped(After())
    with torch.no_grad():
        close(capsviz.trace(net, images).children, net.network.encode(images))


def test_a_class_for_no_parent_is_none_of_the_logits(images):
    def leaky(b):
        return torch.cat((torch.zeros_like(b[..., :1]), b), 2).softmax(2)[..., 1:]

    seen = capsviz.trace(wrapped(Written(softmax=leaky)), images)
    assert seen.logits is None and seen.couplings.shape == (3, 5, I, J)


def test_a_decoder_that_holds_for_the_recorded_images_alone_is_not_used(images):
    class Indexed(Written):
        def __init__(self):
            super().__init__()
            self.names = torch.nn.Parameter(2.0 * torch.arange(3 * 12).view(3, 12).sin())

        def drawn(self, v, length):
            own = length.argmax(1).tolist()
            kept = torch.cat((v[range(len(v)), own], self.names[own]), 1)
            return self.decoded(kept).view(-1, *SHAPE)

    net = wrapped(Indexed())
    assert net.decoder is None
    assert "with other images: not used" in net.report()


def test_an_exponential_over_another_s_sum_is_no_softmax():
    class Other(zoo.Einsum):
        def forward(self, x):
            votes = torch.einsum("ijed,bid->bije", self.W, self.encode(x))
            b = votes.sum(3)
            c = b.exp() / (2 * b).exp().sum(2, keepdim=True)
            return zoo.squash(torch.einsum("bij,bije->bje", c, votes)).norm(dim=2)

    with pytest.raises(NoCapsulesError):
        wrapped(Other)


def test_with_poses_of_the_last_iteration_alone_all_parts_are_of_it(images):
    nets = wrapped(zoo.Unsqueezed), wrapped(zoo.Unsqueezed, poses="digits")
    for couplings in ("shuffled", "matched", "uniform", None):
        whole, seen = (capsviz.trace(net, images, couplings=couplings) for net in nets)
        assert len(seen.poses) == len(seen.couplings) == 1 < len(whole.couplings)
        if couplings != "shuffled":  # whose draws are by iteration
            close(seen.poses[-1], whole.poses[-1])
    close(seen.couplings[-1], whole.couplings[-1])


@pytest.mark.parametrize("poses", [None, "digits"])
def test_compiled_modules_inside_are_looked_at_as_they_were_written(poses, images):
    network = zoo.Unsqueezed().eval()
    before = capsviz.trace(capsviz.wrap(network, **SMALL, poses=poses), images)
    compiled = network.digits = torch.compile(network.digits, backend="eager")
    network.conv.compile(backend="eager")
    net = capsviz.wrap(network, **SMALL, poses=poses)
    after = capsviz.trace(net, images)
    close(after.poses, before.poses)
    close(after.children, before.children)
    assert "softmax in digits, public_layouts.py" in net.report()
    assert network.digits is compiled and network.conv._compiled_call_impl is not None


@pytest.mark.parametrize("options", [{}, {"couplings": "route:c"}], ids=str)
def test_compiled_functions_inside_are_looked_at_as_they_were_written(options, images):
    import torch._dynamo.testing

    class Compiled(zoo.Einsum):
        """A method and a function of its own are compiled, each in its own way."""

        squash = staticmethod(torch.compile(zoo.squash, backend="eager"))

        def __init__(self):
            super().__init__()
            self.route = torch.compile(self.route, backend="eager")

        def route(self, votes):
            b = torch.zeros(votes.shape[:3])
            for _ in range(3):
                c = b.softmax(2)
                v = self.squash(torch.einsum("bij,bije->bje", c, votes))
                b = b + torch.einsum("bije,bje->bij", votes, v)
            return v

        def forward(self, x):
            return self.route(torch.einsum("ijed,bid->bije", self.W, self.encode(x))).norm(dim=2)

    net = wrapped(Compiled, **options)
    with torch.no_grad():
        own = expected(net.network, images)
    order = zoo.BY_PLACE.argsort() if options else slice(None)  # no grid is looked for by couplings
    close(capsviz.trace(net, images).couplings, own["couplings"][:, :, order])
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    torch.compile(lambda x: x + 1, backend=counter)(images)
    assert counter.frame_count == 1  # elsewhere what is compiled runs compiled, as before


def test_what_weighs_the_votes_after_a_bias_is_read_and_replaced(images):
    net = wrapped(zoo.Attention)
    seen = capsviz.trace(net, images)
    total = torch.einsum("bij,bije->bje", seen.couplings[-1], seen.votes)
    length = total.norm(dim=2, keepdim=True)
    close(seen.poses[-1], (1 - torch.exp(-length)) * total / length, 1e-5)
    assert (seen.couplings.sum(3) - 1).abs().max() > 0.1
    assert net.peculiar["sums"] == "a bias is added after the softmax"
    given = torch.rand(24, 3).softmax(1)
    total = torch.einsum("ij,bije->bje", given, seen.votes)
    length = total.norm(dim=2, keepdim=True)
    moved = capsviz.trace(net, images, couplings=given)
    close(moved.poses[-1], (1 - torch.exp(-length)) * total / length, 1e-5)


def test_expectation_maximisation_is_read_with_its_first_pass_and_scaled_weights(images):
    net = wrapped(zoo.Expectation)
    with torch.no_grad():
        seen = net.look(images, keep=("couplings", "weights", "votes", "poses", "lengths"))
        output = output_of(net.network, images)
        a = torch.sigmoid(net.network.activation(images)).view(5, 24, 1)
    close(seen["couplings"][0], torch.full((5, 24, 3), 1 / 3))
    assert len(seen["couplings"]) == len(seen["poses"]) == 3
    r = seen["couplings"] * a
    close(seen["weights"], r / r.sum(2, keepdim=True), 1e-5)
    mean = torch.einsum("rbij,bije->rbje", seen["weights"], seen["votes"])
    close(seen["poses"], mean, 1e-5)
    close(seen["lengths"], output)


def test_other_couplings_in_em_move_poses_and_activations(images):
    net = wrapped(zoo.Expectation)
    given = torch.rand(24, 3).softmax(1)
    seen = capsviz.trace(net, images)
    moved = capsviz.trace(net, images, couplings=given)
    with torch.no_grad():
        a = torch.sigmoid(net.network.activation(images)).view(5, 24, 1, 1)
        mu, _, out = net.network.m_step(a, given.expand(5, 24, 3)[..., None], seen.votes)
        weights = net.look(images, keep=("weights",), couplings=given)["weights"]
        r = given * a[..., 0]
    close(moved.poses[-1], mu[:, 0], 1e-5)
    close(moved.couplings, given.expand(3, 5, 24, 3))
    close(weights, (r / r.sum(1, keepdim=True)).expand(3, 5, 24, 3), 1e-5)
    close(moved.lengths, out[:, 0])


def test_votes_that_are_never_made_are_computed_from_the_einsum(images):
    net = wrapped(zoo.Never, scores="softmax")
    seen = capsviz.trace(net, images)
    with torch.no_grad():
        votes = torch.einsum("bid,ijed->bije", net.network.encode(images), net.network.W)
        output = output_of(net.network, images)
    close(seen.votes, votes, 1e-5)
    close(seen.lengths, output.softmax(1))
    total = torch.einsum("rbij,bije->rbje", seen.couplings, votes)
    close(seen.poses, torch.nn.functional.layer_norm(total, (6,)), 1e-4)


def test_without_a_softmax_local_variables_are_watched(images):
    net = wrapped(zoo.Watchable, **EM)
    before = sys.gettrace()
    seen = capsviz.trace(net, images)
    assert sys.gettrace() is before
    assert seen.couplings.shape == (3, 5, 24, 3)
    mean = torch.einsum("rbij,bije->rbje", seen.couplings, seen.votes)
    close(seen.poses, mean, 1e-5)
    with pytest.raises(ValueError, match="can be read, but not replaced"):
        capsviz.trace(net, images, couplings="uniform")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("nowhere.forward:c", "there is no module 'nowhere'"),
        ("n_step:share", "has no method 'n_step'"),
        ("m_step:c", "has no variable 'c'"),
    ],
)
def test_a_variable_that_is_not_there_is_named(name, said):
    with pytest.raises(ValueError, match=said):
        wrapped(zoo.Watchable, couplings=name)


def test_gradients_flow_to_images_and_poses(images):
    net = wrapped(zoo.Unsqueezed)
    images.requires_grad_()
    lengths = net.look(images, keep=("lengths",))["lengths"]
    (found,) = torch.autograd.grad(lengths[:, 1].sum(), images)
    (own,) = torch.autograd.grad(output_of(net.network, images)[0][:, 1].sum(), images)
    close(found, own)
    poses = torch.rand(2, 3, 6, requires_grad=True)
    (slope,) = torch.autograd.grad(net.decode(poses, torch.tensor([0, 2])).sum(), poses)
    assert (slope.abs().sum(2) > 0).tolist() == [[True, False, False], [False, False, True]]


@pytest.mark.parametrize("broken", [False, True])
def test_the_network_is_left_as_it_was(broken, images):
    net = zoo.Unsqueezed().train()
    net.digits.eval()
    modes, tracing = [module.training for module in net.modules()], sys.gettrace()
    before = {name: value.clone() for name, value in net.state_dict().items()}

    def call(model, batch):
        model(batch)
        raise RuntimeError("on purpose")

    if broken:
        with pytest.raises(ValueError, match=r"refuses images.*on purpose"):
            capsviz.wrap(net, **SMALL, call=call)
    else:
        capsviz.trace(capsviz.wrap(net, **SMALL), images)
    assert [module.training for module in net.modules()] == modes and net.digits.routings == 3
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in net.modules())
    assert torch.overrides._get_current_function_mode() is None and sys.gettrace() is tracing
    for name, value in net.state_dict().items():
        assert torch.equal(value, before[name]), name


@pytest.mark.parametrize("normalise", [(0.13, 0.31), (torch.tensor([0.13]), torch.tensor([0.31]))])
def test_a_normalisation_is_applied_inside(normalise, images):
    net = zoo.Unsqueezed().eval()
    seen = capsviz.trace(capsviz.wrap(net, **SMALL, normalise=normalise), images)
    with torch.no_grad():
        close(seen.lengths, output_of(net, (images - 0.13) / 0.31)[0])


def test_facts_can_be_given_by_hand(images):
    net = wrapped(
        zoo.Unsqueezed,
        scores=lambda out: out[0] ** 2,
        poses="digits",
        decode=lambda poses, classes: torch.zeros(len(poses), 120),
        grid=(4, 2, 3),
        children=lambda out: torch.ones(len(out[0]), 24, 2),
    )
    with torch.no_grad():
        seen = net.look(images, keep=("poses", "primary", "reconstruction"))
    assert seen["poses"].shape == (1, 5, 3, 6)
    assert seen["primary"].shape == (5, 24, 2)
    assert seen["reconstruction"].shape == (5, *SHAPE)
    close(seen["lengths"], seen["poses"][-1].norm(dim=2) ** 2)
    assert net.grid == (4, 2, 3)


@pytest.mark.parametrize("numbers", [4, 8])  # of 12 positions of a channel
def test_capsules_made_by_view_across_positions_have_no_grid(numbers):
    class Across(zoo.Unsqueezed):
        def __init__(self):
            super().__init__()
            self.digits.weight = torch.nn.Parameter(torch.randn(96 // numbers, 3, 6, numbers))

        def encode(self, x):
            return zoo.squash(self.conv(x).view(len(x), 96 // numbers, numbers))

    net = wrapped(Across)
    assert net.grid is None
    assert "as where `view` goes across positions" in net.report()


def test_a_network_that_loses_a_batch_of_one_is_given_two(images):
    class Loses(zoo.ParentsFirst):
        def forward(self, x):
            return super().forward(x).norm(dim=2)

    net = wrapped(Loses)
    assert "cannot take one image" in net.report()
    whole = capsviz.trace(net, images)
    alone = capsviz.trace(net, images[:1])
    close(alone.lengths, whole.lengths[:1])
    close(alone.couplings, whole.couplings[:, :1])
    given = torch.rand(1, 24, 3).softmax(2)
    assert capsviz.trace(net, images[:1], couplings=given).poses.shape == (3, 1, 3, 6)


def test_a_report_says_what_was_found_where_and_what_can_be_run():
    said = wrapped(zoo.Unsqueezed).report()
    for text in (
        "softmax in digits, public_layouts.py:",
        "3 iterations",
        "(2, 4, 3), type by type; the first position sees rows 0 to 4",
        "set by digits.routings",
    ):
        assert text in said
    assert "perturb (no decode)" not in said
    assert "perturb" in wrapped(zoo.Einsum).report().rpartition("cannot")[2]


def test_a_network_without_capsules_can_be_evaluated(images):
    from capsviz.tracing import scores

    with pytest.raises(NoCapsulesError):
        wrapped(zoo.Plain)
    net = wrapped(zoo.Plain, couplings=None)
    assert not isinstance(net, Wrapped)
    with torch.no_grad():
        close(scores(net, images), output_of(net.network, images))
    with pytest.raises(ValueError, match="has no method `look` that shows its capsules"):
        capsviz.trace(net, images)


def test_of_logits_and_their_softmax_the_probabilities_are_the_scores(images):
    class Both(zoo.Plain):
        def forward(self, x):
            logits = self.fc(self.conv(x).relu().flatten(1))
            return {"logits": logits, "probabilities": logits.softmax(1)}

    bare = wrapped(Both, couplings=None)
    with torch.no_grad():
        assert bare(images).lengths.equal(bare.network(images)["probabilities"])


@pytest.mark.parametrize("kind", [zoo.Unsqueezed, zoo.Expectation])
def test_a_wrapped_network_is_verified_once_as_it_is_wrapped(kind, images, monkeypatch):
    net = wrapped(kind)
    with torch.no_grad():
        assert list(verification.mistakes(net, images)) == []
    monkeypatch.setattr(verification, "mistakes", lambda *_: pytest.fail("verified again"))
    capsviz.trace(net, images)
    monkeypatch.setattr(verification, "mistakes", lambda *_: ["it lies"])
    with pytest.raises(ValueError, match=f"network '{kind.__name__}' is not .* trusted: it lies"):
        wrapped(kind)


class InParts(Written):
    """The sum over children is two sums, over types and over positions."""

    def forward(self, x):
        votes = self.votes(self.encode(x)).view(len(x), zoo.TYPES, -1, J, E)
        b = torch.zeros(votes.shape[:4])
        for _ in range(self.iterations):
            v = zoo.squash((b.softmax(3)[..., None] * votes).sum(1).sum(1))
            b = b + (votes * v[:, None, None]).sum(-1)
        return v.norm(dim=2)


class Squeezed(Written):
    """Votes lose a batch of one."""

    def votes(self, u):
        return super().votes(u).squeeze()


@pytest.mark.parametrize(("kind", "count"), [(InParts, 5), (Squeezed, 1)])
def test_sums_in_parts_and_votes_without_a_batch_of_one_are_read_and_weighed(kind, count, images):
    net, some = wrapped(kind()), images[:count]
    given = torch.rand(I, J, generator=torch.Generator().manual_seed(1)).softmax(1)
    for couplings in (None, given):
        seen = capsviz.trace(net, some, couplings=couplings)
        with torch.no_grad():
            own = expected(net.network, some, couplings=couplings)
        for part in ("votes", "couplings", "poses"):
            close(getattr(seen, part), own[part])


class AsWideAsVotes(Written):
    """Couplings without a softmax, repeated for each number of a pose."""

    def forward(self, x):
        return self.route(self.votes(self.encode(x))).norm(dim=2)

    def route(self, votes):
        c = votes.new_full(votes.shape, 1 / J)
        for _ in range(self.iterations):
            v = zoo.squash((c * votes).sum(1))
            p = (votes * v[:, None]).sum(-1, keepdim=True).exp2().expand_as(votes)
            c = p / p.sum(2, keepdim=True)
        return v


class ApartVotes(AsWideAsVotes):
    """Votes with types and positions as separate axes, behind the parents."""

    def route(self, votes):
        c = votes.new_full((len(votes), I, J), 1 / J)
        votes = votes.movedim(2, 1).unflatten(2, (zoo.TYPES, -1))
        for _ in range(self.iterations):
            flat = votes.flatten(2, 3)
            v = zoo.squash(torch.einsum("bij,bjie->bje", c, flat))
            p = torch.einsum("bjie,bje->bij", flat, v).exp2()
            c = p / p.sum(2, keepdim=True)
        return v


@pytest.mark.parametrize("kind", [AsWideAsVotes, ApartVotes])
def test_named_couplings_and_votes_have_the_children_that_they_are_of(kind, images):
    names = {part: f"route:{name}" for part, name in (("couplings", "c"), ("votes", "votes"))}
    net = wrapped(kind(), **names)
    seen = capsviz.trace(net, images)
    assert seen.couplings.shape == (3, 5, I, J)  # those made after the last sum weigh nothing
    with torch.no_grad():
        votes = net.network.votes(net.network.encode(images))
        close(seen.votes, votes)
        poses = net.network.route(votes)
    total = torch.einsum("bij,bije->bje", seen.couplings[-1], votes)
    close(zoo.squash(total), poses)


def test_named_couplings_that_are_all_equal_do_not_tell_the_children():
    class Equal(AsWideAsVotes):
        def route(self, votes):
            c = votes.new_full(votes.shape, 1 / J)
            return zoo.squash((c * votes).sum(1))

    with pytest.raises(ValueError, match="all couplings are equal"):
        wrapped(Equal(), couplings="route:c")


def test_first_couplings_may_be_a_constant_of_the_classes_that_the_same_line_scales(images):
    class Constant(zoo.Unsqueezed):
        def forward(self, x):
            v = self.encode(x)
            votes, active = torch.einsum("ijed,bid->bije", self.W, v), v.norm(dim=2)[..., None]
            c, b = torch.full((J,), 1 / J), 0
            for k in range(2):
                if k:
                    b = b + (votes * v[:, None]).sum(3)
                    c = b.softmax(2)
                weights = active * c
                v = zoo.squash(torch.einsum("bij,bije->bje", weights, votes))
            return v.norm(dim=2)

    net = wrapped(Constant())
    seen = capsviz.trace(net, images)
    active = net.network.encode(images).norm(dim=2)[..., None].detach()
    v = zoo.squash(torch.einsum("bij,bije->bje", (active / J).expand(5, I, J), seen.votes))
    couplings = (seen.votes * v[:, None]).sum(3).softmax(2)
    close(seen.couplings[0], torch.full((5, I, J), 1 / J), 1e-6)
    close(seen.couplings[1], couplings, 1e-5)
    close(seen.poses[-1], zoo.squash(torch.einsum("bij,bije->bje", active * couplings, seen.votes)))


class Rescaled(zoo.Base):
    """Couplings are rescaled by something that is made of them; `given` takes their place."""

    def __init__(self, rescale=lambda c: c):
        super().__init__()
        self.rescale, self.given = rescale, None

    def votes(self, x):
        return torch.einsum("ijed,bid->bije", self.W, self.encode(x))

    def route(self, votes):
        b = torch.zeros(votes.shape[:3])
        for _ in range(3):
            c = b.softmax(-1)
            c = self.rescale(c if self.given is None else self.given.expand_as(c))
            v = zoo.squash((c[..., None] * votes).sum(1))
            b = b + torch.einsum("bije,bje->bij", votes, v)
        return v

    def forward(self, x):
        return self.route(self.votes(x)).norm(dim=2)


@pytest.mark.parametrize(
    "rescale",
    [
        lambda c: c / c.sum(1, keepdim=True) * 5,
        lambda c: c / c.amax(2, keepdim=True),
        lambda c: c * (c > 0.33),
        lambda c: torch.where(c > 0.33, c, torch.zeros(())),
        lambda c: c.masked_fill(c < c.topk(2, 2).values[..., -1:], 0.0),
    ],
    ids=["slots", "largest", "mask", "where", "top two"],
)
def test_given_couplings_reach_all_that_is_made_of_the_softmax(rescale, images):
    net = wrapped(Rescaled(rescale))
    drawn = torch.rand(5, I, J, generator=torch.Generator().manual_seed(1)).softmax(-1)
    for given, equal in (("uniform", torch.full((5, I, J), 1 / J)), (drawn, drawn)):
        net.network.given = None
        seen = capsviz.trace(net, images, couplings=given)
        net.network.given = equal
        with torch.no_grad():
            close(seen.lengths, net.network(images))


class Chunked(Rescaled):
    def route(self, votes):
        c = (votes.sum(-1) * 0.1).softmax(-1)
        parts = zip(c.chunk(3, 1), votes.chunk(3, 1), strict=True)
        return zoo.squash(sum((some[..., None] * own).sum(1) for some, own in parts))


def test_a_sum_over_a_part_of_the_children_is_no_layer():
    with pytest.raises(NoCapsulesError, match="weighs none"):
        wrapped(Chunked)


class Twice(Rescaled):
    """Two routings by one function; the scores are of the first."""

    def forward(self, x):
        votes = self.votes(x)
        return {
            "shape": self.route(votes).norm(dim=2),
            "colour": self.route(votes.flip(3)).norm(dim=2),
        }


def test_of_two_routings_in_one_line_each_can_be_named(images):
    how = {"scores": lambda out: out["shape"]}
    with pytest.raises(ValueError, match=r"\(1\), 3 iterations; .* \(2\), 3 iterations; say which"):
        wrapped(Twice, **how)
    net = wrapped(Twice, **how, pair="(1)")
    with torch.no_grad():
        close(capsviz.trace(net, images).poses[-1].norm(dim=2), net.network(images)["shape"])


class Looped(zoo.Base):
    """Votes of all layers are made in one line."""

    class Routing(torch.nn.Module):
        def forward(self, votes):
            return Rescaled(lambda c: c).route(votes)

    def __init__(self):
        super().__init__()
        sizes = ((I, 4, 4, 4), (4, J, E, 4))
        self.weights = torch.nn.ParameterList(torch.randn(one) for one in sizes)
        self.routings = torch.nn.ModuleList(self.Routing() for _ in sizes)

    def forward(self, x):
        u = self.encode(x)
        for weight, routing in zip(self.weights, self.routings, strict=True):
            votes = torch.einsum("ijed,bid->bije", weight, u)
            u = routing(votes)
        return u.norm(dim=2)


def test_votes_of_a_layer_are_its_own_where_others_share_its_code(images):
    net = wrapped(Looped)
    for layer, shape in ((0, (5, I, 4, 4)), (1, (5, 4, J, E))):
        seen = capsviz.trace(net, images, layer=layer)
        assert seen.votes.shape == shape
    with torch.no_grad():
        close(seen.lengths, net.network(images))


def test_scores_that_are_sorted_are_no_classes(images):
    class Sorted(zoo.Einsum):
        def forward(self, x):
            return super().forward(x)["poses"].norm(dim=2).sort(1, descending=True)

    net = wrapped(Sorted)
    seen = capsviz.trace(net, images)
    close(seen.lengths, seen.poses[-1].norm(dim=2))


def test_scores_in_another_order_than_the_poses_are_refused():
    class Reversed(zoo.Einsum):
        def forward(self, x):
            return super().forward(x)["poses"].norm(dim=2).flip(1)

    with pytest.raises(ValueError, match="norms of the poses in another order"):
        wrapped(Reversed)


def test_scores_that_are_nan_are_said_to_be():
    class Broken(zoo.Einsum):
        def forward(self, x):
            return super().forward(x)["poses"].norm(dim=2) * float("nan")

    with pytest.raises(ValueError, match="scores are not finite"):
        wrapped(Broken)
