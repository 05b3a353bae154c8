"""Density estimation of sensor records with a continuous flow (torchdiffeq)."""

import math

import torch
from torch import nn
from torchdiffeq import odeint


class VelocityField(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim + 1, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, dim)
        )

    def forward(self, t, z):
        return self.net(torch.cat([z, t.expand(z.shape[0], 1)], dim=1))


def divergence(dz_dt, z):
    """Exact trace of the Jacobian of dz_dt with respect to z, per record."""
    basis = torch.eye(z.shape[1], device=z.device, dtype=z.dtype)
    (jacobian,) = torch.autograd.grad(
        dz_dt, z, basis[:, None, :].expand(-1, z.shape[0], -1), create_graph=True, is_grads_batched=True
    )
    return torch.einsum("ibi->b", jacobian)


class FlowDynamics(nn.Module):
    def __init__(self, field):
        super().__init__()
        self.field = field

    def forward(self, t, state):
        z, _ = state
        with torch.enable_grad():
            if not z.requires_grad:
                z = z.requires_grad_(True)
            dz_dt = self.field(t, z)
            trace = divergence(dz_dt, z)
        return dz_dt, -trace


class ContinuousFlow(nn.Module):
    def __init__(self, dim, hidden, num_steps):
        super().__init__()
        self.dim = dim
        self.dynamics = FlowDynamics(VelocityField(dim, hidden))
        self.register_buffer("times", torch.tensor([0.0, 1.0]))
        self.step_size = 1.0 / num_steps

    def log_prob(self, x):
        start = (x, x.new_zeros(x.shape[0]))
        z, delta = odeint(self.dynamics, start, self.times, method="rk4", options={"step_size": self.step_size})
        z, delta = z[-1], delta[-1]
        log_base = -0.5 * (z.square().sum(1) + self.dim * math.log(2 * math.pi))
        return log_base - delta


def make(device, small):
    torch.manual_seed(0)
    dim, hidden, num_steps, batch = (3, 16, 2, 32) if small else (8, 64, 4, 1024)
    flow = ContinuousFlow(dim, hidden, num_steps).to(device)
    optimizer = torch.optim.Adam(flow.parameters(), lr=1e-3)
    mixing = torch.randn(dim, dim, device=device)
    records = torch.randn(16, batch, dim, device=device) @ mixing / dim**0.5
    counter = 0

    def step():
        nonlocal counter
        x = records[counter % len(records)].clone()
        counter += 1
        optimizer.zero_grad(set_to_none=True)
        loss = -flow.log_prob(x).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(flow.parameters(), 10.0)
        optimizer.step()
        return loss.detach()

    return step
