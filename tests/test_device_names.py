from topoadvisor.device_names import natural_key


def test_numbers_count_and_other_digits_do_not():
    names = ["mlx5_10", "mlx5_2", "eth٣", "eth²", "mlx5_2s0", "9" * 5000]
    assert sorted(names, key=natural_key)[:2] == ["9" * 5000, "eth²"]
    assert sorted(names[:2], key=natural_key) == ["mlx5_2", "mlx5_10"]
