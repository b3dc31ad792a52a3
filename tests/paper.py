"""Worked examples, the paper's and the front page's; and an evaluation of problem text that shares no code with ours."""

SEVEN_NODES = "6 = x8 ; 12 = x7 ; 18 = x5 ; x5 + x8 = x2 ; x7 + x8 - x5 = x9 ; x7 * x2 = x1 ; x1 - x9 * x2 = x4"
"""The front page's problem, with all three operations."""
NINE_NODES = (
    "20 -> x7 ; 2 -> x42 ; 6 -> x88 ; 14 -> x115 ; "
    "x7 + x42 -> x23 ; x42 + x88 -> x91 ; x88 × x115 -> x55 ; "
    "x23 × x91 -> x101 ; x91 - x88 + x55 -> x30"
)
NINE_GENERATIONS = [{"x7", "x42", "x88", "x115"}, {"x23", "x91", "x55"}, {"x101", "x30"}]

PROMPT = (
    "2 = x3 ; 2 = x30 ; 18 = x12 ; 14 = x11 ; 15 = x20 ; 8 = x23 ; x30 = x9 ; x23 + x3 = x22 ; x20 * x23 = x27 ; "
    "x3 + x22 = x0 ; x3 + x22 * x11 = x26 ; x20 - x22 + x23 = x13 ; x22 = x24 ; x12 * x23 - x0 = x17 ; "
    "x11 * x26 = x28 ; x13 - x11 + x23 = x21 ; x17 - x3 = x25 ; x30 * x17 - x23 = x6 ; x17 = x16 ; x11 + x21 = x7 ; "
    "x28 + x17 - x21 = x14 ; x7 = x15 ; x7 = x31 ; x12 + x3 + x14 = x5 ; x14 = x19 ; x23 - x5 * x7 = x29 ; x5 = x18 ; "
    "x25 + x23 - x19 = x4 ; x14 * x29 - x5 = x2 ; x29 * x28 - x7 = x1 ; x3 * x23 * x18 = x8 ; x8 - x28 - x0 = x10"
)
CHAIN_OF_THOUGHT = (
    "x3 = 2 ; x30 = 2 ; x12 = 18 ; x11 = 14 ; x20 = 15 ; x23 = 8 ; x9 = x30 = 2 ; x22 = x23 + x3 = 10 ; x27 = x20 "
    "* x23 = 5 ; x0 = x3 + x22 = 12 ; x26 = x3 + x22 * x11 = 7 ; x13 = x20 - x22 + x23 = 13 ; x24 = x22 = 10 ; "
    "x17 = x12 * x23 - x0 = 17 ; x28 = x11 * x26 = 6 ; x21 = x13 - x11 + x23 = 7 ; x25 = x17 - x3 = 15 ; x6 = x30 "
    "* x17 - x23 = 3 ; x16 = x17 = 17 ; x7 = x11 + x21 = 21 ; x14 = x28 + x17 - x21 = 16 ; x15 = x7 = 21 ; x31 = "
    "x7 = 21 ; x5 = x12 + x3 + x14 = 13 ; x19 = x14 = 16 ; x29 = x23 - x5 * x7 = 10 ; x18 = x5 = 13 ; x4 = x25 + "
    "x23 - x19 = 7 ; x2 = x14 * x29 - x5 = 9 ; x1 = x29 * x28 - x7 = 16 ; x8 = x3 * x23 * x18 = 1 ; x10 = x8 - "
    "x28 - x0 = 6"
)


def evaluate_text(text: str, modulus: int) -> dict[str, int]:
    """Solve printed equations by asking for each variable's definition, one operation at a time."""
    definitions = {}
    for equation in text.split(" ; "):
        expression, variable = equation.split(" = ")
        definitions[variable] = expression.split()
    values: dict[str, int] = {}
    stack = list(definitions)
    while stack:
        words = definitions[stack[-1]]
        missing = [word for word in words[::2] if word.startswith("x") and word not in values]
        if missing:
            stack += missing
            continue
        numbers = [values[word] if word.startswith("x") else int(word) for word in words[::2]]
        result = numbers[0]
        for operation, number in zip(words[1::2], numbers[1:], strict=True):
            result = {"+": result + number, "-": result - number, "*": result * number}[operation] % modulus
        values[stack.pop()] = result % modulus
    return values
