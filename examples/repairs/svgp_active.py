"""Active learning with a sparse variational GP: each round scores a pool of candidates by the predictive
standard
deviation, takes the most uncertain ones into the training set and makes one ELBO step on a mini-batch."""

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

STEPS = 4


class SVGP(gpytorch.models.ApproximateGP):
    def __init__(self, inducing):
        q = CholeskyVariationalDistribution(inducing.size(0))
        super().__init__(VariationalStrategy(self, inducing, q, learn_inducing_locations=True))
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = gpytorch.kernels.ScaleKernel(
            gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=inducing.size(1))
        )

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class Learner:
    def __init__(self, x, y, num_inducing, device):
        self.x, self.y = x, y
        self.model = SVGP(x[:num_inducing].clone()).to(device)
        self.likelihood = gpytorch.likelihoods.GaussianLikelihood().to(device)
        self.elbo = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, num_data=x.size(0))
        params = [*self.model.parameters(), *self.likelihood.parameters()]
        self.optimizer = torch.optim.Adam(params, lr=5e-3, fused=True)

    @torch.no_grad()
    def score(self, pool):
        """Predictive standard deviation of a new observation at each candidate."""
        self.model.eval()
        self.likelihood.eval()
        pred = self.likelihood(self.model(pool))
        return pred.covariance_matrix.diagonal(dim1=-2, dim2=-1).sqrt()

    def update(self, batch):
        self.model.train()
        self.likelihood.train()
        idx = torch.randint(self.x.size(0), (batch,), device=self.x.device)
        loss = -self.elbo(self.model(self.x[idx]), self.y[idx])
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def acquire(self, x, y):
        self.x, self.y = torch.cat([self.x, x]), torch.cat([self.y, y])


def simulator(x):
    return torch.sin(3 * x[:, 0]) + (x[:, 1:] ** 2).mean(dim=1) + 0.05 * torch.randn_like(x[:, 0])


def make(device, small):
    num_inducing, pool_size, batch, dim, query = (16, 96, 32, 4, 4) if small else (768, 12288, 1024, 8, 64)
    x = torch.rand(2 * batch, dim, device=device)
    pool = torch.rand(4, pool_size, dim, device=device)
    learner = Learner(x, simulator(x), num_inducing, device)
    rounds = iter(range(10**6))

    def step():
        candidates = pool[next(rounds) % 4]
        std = learner.score(candidates)
        top, where = std.topk(query)
        chosen = candidates[where]
        learner.acquire(chosen, simulator(chosen))
        loss = learner.update(batch)
        return loss, top.mean(), std.mean()

    return step
