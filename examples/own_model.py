"""Look inside a looped model of your own, by iteration: capture, patch, and two of the analyses."""

import torch
from torch import Tensor, nn

from latentloop.interpret import capture, patch
from latentloop.interpret.fourier import frequency_groups, summarize, transform
from latentloop.interpret.heads import moments
from latentloop.model.tap import Tap, Taps

P = 7


class Adder(nn.Module):
    """A loop that adds three numbers modulo P, one an iteration; its state is a distribution over P values."""

    def __init__(self) -> None:
        super().__init__()
        self.taps = Taps()  # what capture and patch look for
        self.tap = Tap(self.taps, layer=0)

    def forward(self, numbers: Tensor) -> Tensor:
        """Return the state after three iterations."""
        state = torch.eye(P)[torch.zeros(len(numbers), dtype=torch.long)]
        for iteration in range(3):
            self.taps.iteration = iteration
            moved = state.gather(1, (torch.arange(P) - numbers[:, iteration, None]) % P)
            state = self.tap("resid_post", moved[:, None])[:, 0]  # [batch, position, width], of one position
        return state


model, cube, found = Adder(), torch.cartesian_prod(*[torch.arange(P)] * 3), []
with capture(model, ["resid_post"]) as seen:
    model(cube)
for iteration in range(3):
    states = seen[iteration, 0, "resid_post"][:, 0]
    variance, norm = moments(states[cube[:, :2].sum(1) == 0])  # samples that differ in the third number alone
    site = summarize("state", transform(states.unflatten(0, (P, P, P))), frequency_groups(P))
    found.append((round(float(variance / norm), 2), round(site.diagonal, 2)))
print(found)  # [(0.0, 0.0), (0.0, 0.0), (0.86, 1.0)]
with patch(model, "resid_post", lambda state: state.roll(1, -1), layer=0, iterations=[0]):  # one more
    print(bool((model(cube).argmax(1) == (cube.sum(1) + 1) % P).all()))  # True
