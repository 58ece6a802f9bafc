import pytest

from topoadvisor.numbers import natural, size_text, whole


def test_numbers_in_names_count_as_numbers_and_no_foreign_digit_is_an_error() -> None:
    names = ["mlx5_10", "mlx5_2", "9" * 5000, "eth²"]
    assert sorted(names, key=natural)[:2] == ["9" * 5000, "eth²"]
    assert sorted(names[:2], key=natural) == ["mlx5_2", "mlx5_10"]


@pytest.mark.parametrize("text", [None, "", "x", "-1", " 1", "²", "\u0663", "9" * 19, "9" * 5000])
def test_what_is_no_number(text: str | None) -> None:
    assert whole(text) is None


def test_a_number() -> None:
    assert whole("0042") == 42


@pytest.mark.parametrize(
    ("size", "told"),
    [
        (0, "0 bytes"),
        (1, "1 byte"),
        (1023, "1023 bytes"),
        (1 << 10, "1 KiB"),
        (25 << 20, "25 MiB"),
        (3 << 29, "1.5 GiB"),
        (1 << 44, "16 TiB"),
        (2**63 - 1, "8 EiB"),
        (-1, "unlimited"),
    ],
)
def test_sizes_in_words(size: int, told: str) -> None:
    assert size_text(size) == told
