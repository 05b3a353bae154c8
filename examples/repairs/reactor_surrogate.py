"""Screening of reactor designs with a Gaussian-process surrogate (gpytorch)."""

import gpytorch
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel


class SurrogateModel(gpytorch.models.ExactGP):
    def __init__(self, train_x, train_y, likelihood):
        super().__init__(train_x, train_y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = ScaleKernel(MaternKernel(nu=2.5, ard_num_dims=train_x.shape[-1]))

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


class DesignScreen:
    """Scores candidate designs by an upper confidence bound."""

    def __init__(self, model, beta=2.0, keep=64):
        self.model = model.eval()
        self.beta = beta
        self.keep = keep

    def posterior(self, designs):
        with gpytorch.settings.fast_pred_var(), gpytorch.settings.max_cholesky_size(20_000):
            pred = self.model(designs)
            mean = pred.mean
            std = pred.covariance_matrix.diagonal().clamp_min(1e-10).sqrt()
        return mean, std

    @torch.no_grad()
    def __call__(self, designs):
        mean, std = self.posterior(designs)
        score = mean + self.beta * std
        top = score.topk(min(self.keep, score.shape[0]))
        return top.values, top.indices


def simulated_yield(x):
    return torch.sin(3 * x[:, 0]) + x[:, 1] * x[:, 2] - (x[:, 3] - 0.5) ** 2


def make(device, small):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("highest")
    num_train, num_designs, dims = (400, 300, 6) if small else (8192, 8192, 12)
    train_x = torch.rand(num_train, dims, device=device)
    train_y = simulated_yield(train_x) + 0.05 * torch.randn(num_train, device=device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
    model = SurrogateModel(train_x, train_y, likelihood).to(device)
    likelihood.noise = 0.05
    model.covar_module.base_kernel.lengthscale = 0.6
    screen = DesignScreen(model)
    candidates = [torch.rand(num_designs, dims, device=device) for _ in range(3)]
    counter = 0

    def step():
        nonlocal counter
        designs = candidates[counter % len(candidates)]
        counter += 1
        values, _indices = screen(designs)
        return values

    return step
