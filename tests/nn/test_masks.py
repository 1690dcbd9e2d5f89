"""Key-padding masks, empty batches and empty rows; parameters that no framework initialises anew."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from riffle import ShuffleExchange


def cells(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def mask_of(lengths: list[int], width: int) -> torch.Tensor:
    return torch.arange(width) >= torch.tensor(lengths)[:, None]


def test_a_mask_is_what_its_lengths_are() -> None:
    net, lengths = ShuffleExchange(4, blocks=2), [5, 0, 8, 1]
    x_BND = cells(4, 8, 4)
    y_BND = net(x_BND, key_padding_mask=mask_of(lengths, 8))
    assert torch.equal(y_BND, net(x_BND, lengths=lengths))
    assert torch.equal(y_BND[2], net(x_BND[2:3])[0])
    assert not y_BND[1].any(), "a row without cells is zeros"
    assert not y_BND[0, 5:].any()


def test_a_row_of_length_zero_has_no_gradient() -> None:
    net, x_BND = ShuffleExchange(4), cells(2, 8, 4).requires_grad_()
    net(x_BND, lengths=[0, 3]).sum().backward()
    assert x_BND.grad is not None
    assert not x_BND.grad[0].any()
    assert x_BND.grad[1, :3].all()


@pytest.mark.parametrize("lengths", [None, [], torch.zeros(0, dtype=torch.int64)], ids=str)
def test_an_empty_batch(lengths: object) -> None:
    assert ShuffleExchange(4)(torch.zeros(0, 6, 4), lengths=lengths).shape == (0, 6, 4)
    assert ShuffleExchange(4)(torch.zeros(0, 6, 4), key_padding_mask=mask_of([], 6)).shape == (0, 6, 4)


@pytest.mark.parametrize(
    ("mask_BN", "message"),
    [
        (mask_of([5, 5], 8).flip(1), "row 0 of key_padding_mask has padding before a cell: pad at the end of a row"),
        (torch.tensor([[False] * 8, [False, True] * 4]), "row 1 of key_padding_mask has padding before a cell"),
        ((~mask_of([5, 5], 8)).long(), "True where a cell is padding, got torch.int64.*attention_mask == 0"),
        (mask_of([5, 5], 9), r"\[2, 8\].*got torch.bool \[2, 9\]"),
    ],
    ids=["left", "between", "integers", "shape"],
)
def test_masks_that_are_refused(mask_BN: torch.Tensor, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), key_padding_mask=mask_BN)


def test_one_of_the_two() -> None:
    with pytest.raises(ValueError, match="give one of them"):
        ShuffleExchange(4)(torch.zeros(2, 8, 4), lengths=[5, 5], key_padding_mask=mask_of([5, 5], 8))


@pytest.mark.parametrize("pad", ["power", "even"])
def test_packed_rows_are_padded_rows(pad: str) -> None:
    net, lengths = ShuffleExchange(4, blocks=2, pad=pad).double(), [5, 0, 8, 1, 3]  # type: ignore[arg-type]
    x_BND, ends, padding_D = cells(5, 8, 4).double(), [0, 5, 5, 13, 14, 17], cells(4).double()
    inside_BN = ~mask_of(lengths, 8)
    for padding in (None, padding_D):
        packed_CD = x_BND[inside_BN].requires_grad_()
        y_CD = net(packed_CD, cu_seqlens=torch.tensor(ends), padding=padding)
        exact_CD = torch.cat(
            [net(x_BND[row : row + 1, :size], padding=padding)[0] for row, size in enumerate(lengths) if size]
        )
        torch.testing.assert_close(y_CD, exact_CD, rtol=0, atol=1e-12)
        torch.testing.assert_close(net(x_BND, lengths, padding=padding)[inside_BN], exact_CD, rtol=0, atol=1e-12)
        y_CD.square().sum().backward()
        assert packed_CD.grad is not None
        assert packed_CD.grad.all()
    assert not torch.allclose(net(x_BND[inside_BN], cu_seqlens=ends), exact_CD), "the cell that fills rows up matters"
    nested = torch.nested.nested_tensor_from_jagged(x_BND[inside_BN], torch.tensor(ends))
    assert torch.equal(net(nested, padding=padding_D).values(), y_CD)


def test_packed_rows_that_are_refused() -> None:
    net, x_CD = ShuffleExchange(4), cells(6, 4)
    for ends in ([0, 5], [1, 6], [0, 4, 2, 6], [], [0, 3.0, 6], torch.tensor([0.0, 6.0])):
        with pytest.raises(ValueError, match="cu_seqlens that rise from 0 to the 6 cells"):
            net(x_CD, cu_seqlens=ends)
    gaps = torch.nested.narrow(cells(2, 6, 4), 1, torch.zeros(2), torch.tensor([3, 2]), layout=torch.jagged)
    whole = torch.nested.nested_tensor_from_jagged(x_CD, torch.tensor([0, 4, 6]))
    for nested, lengths in ((gaps, None), (whole, [4, 2])):
        with pytest.raises(ValueError, match=r"without gaps .* and with no other lengths than their own"):
            net(nested, lengths)
    packed = nn.utils.rnn.pack_sequence([cells(3, 4), cells(2, 4)])
    with pytest.raises(ValueError, match=r"give \*torch.nn.utils.rnn.pad_packed_sequence\(x, batch_first=True\)"):
        net(packed)
    assert net(*nn.utils.rnn.pad_packed_sequence(packed, batch_first=True)).shape == (2, 3, 4)


def test_frameworks_find_nothing_to_initialise() -> None:
    """Hugging Face's post_init() draws the weights of every nn.Linear anew and sets its bias to 0."""
    net = ShuffleExchange(4, blocks=2)
    assert not [module for module in net.modules() if isinstance(module, nn.Linear)]
    assert [name for name, _ in net["last"].named_parameters()] == [
        "skip_scale",
        "candidates_weight",
        "candidates_bias",
        "gates.weight",
        "gates.bias",
    ]


def test_a_seed_gives_the_network_that_it_always_gave() -> None:
    torch.manual_seed(0)
    unit = ShuffleExchange(2)["last"]
    first = torch.stack([unit.get_parameter("gates.weight")[0, 0], unit.get_parameter("candidates_weight")[0, 0, 0]])
    torch.testing.assert_close(first, torch.tensor([0.34279969, -0.33982754]))
