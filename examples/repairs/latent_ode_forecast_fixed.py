"""Neural ODE forecaster: encodes a window of sensor readings, integrates the latent state to the forecast
horizon
with the adjoint method and regresses the reading at the horizon."""

import torch
import torch.nn.functional as F
from torch import nn
from torchdiffeq import odeint_adjoint

STEPS = 4


class Dynamics(nn.Module):
    """dz/dt = f(t, z), with the time as an extra input."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, hidden),
            nn.Tanh(),
            nn.Linear(hidden, hidden),
            nn.Tanh(),
            nn.Linear(hidden, dim),
        )

    def forward(self, t, z):
        return self.net(torch.cat([z, t.expand(z.size(0), 1)], dim=-1))


class Forecaster(nn.Module):
    def __init__(self, channels, dim, hidden, horizon):
        super().__init__()
        self.encoder = nn.GRU(channels, dim, batch_first=True)
        self.dynamics = Dynamics(dim, hidden)
        self.readout = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, channels))
        self.register_buffer("t", torch.tensor([0.0, horizon]))

    def forward(self, window):
        _, z0 = self.encoder(window)
        z = odeint_adjoint(self.dynamics, z0[0], self.t, rtol=1e-3, atol=1e-4, method="dopri5")
        return self.readout(z[-1])


def make_series(n, length, channels):
    """Damped oscillations with random frequency, phase and decay; the last reading is the target."""
    t = torch.linspace(0, 4, length).view(1, length, 1)
    freq, phase, decay = torch.rand(3, n, 1, channels)
    return torch.exp(-decay * t) * torch.sin(2 * freq * t + 6.28 * phase)


def make(device, small):
    channels, dim, hidden, batch, n = (3, 8, 16, 16, 64) if small else (12, 64, 256, 512, 4096)
    torch.set_float32_matmul_precision("high")
    series = make_series(n, 33, channels).to(device)
    window, target = series[:, :24], series[:, -1]
    model = Forecaster(channels, dim, hidden, horizon=1.0).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step():
        idx = torch.randint(n, (batch,), device=device)
        pred = model(window[idx])
        loss = F.smooth_l1_loss(pred, target[idx])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
