"""What a user sees of a mistake."""


def one_line_error(result, *words):
    code, out, err = result
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1, err
    for word in words:
        assert word in err
    return True
