"""PPO learner for continuous control: takes a rollout from the simulator workers, computes generalised
advantage
estimates and makes two epochs of clipped policy and value updates."""

import torch
from torch import nn
from torch.distributions import Independent, Normal

STEPS = 4


class ActorCritic(nn.Module):
    def __init__(self, obs_dim, act_dim, hidden):
        super().__init__()

        def mlp(out):
            return nn.Sequential(
                nn.Linear(obs_dim, hidden),
                nn.Tanh(),
                nn.Linear(hidden, hidden),
                nn.Tanh(),
                nn.Linear(hidden, out),
            )

        self.actor, self.critic = mlp(act_dim), mlp(1)
        self.log_std = nn.Parameter(torch.zeros(act_dim))

    def policy(self, obs):
        mean = self.actor(obs)
        return Independent(
            Normal(mean, self.log_std.exp().expand_as(mean), validate_args=False), 1, validate_args=False
        )

    def value(self, obs):
        return self.critic(obs).squeeze(-1)


@torch.no_grad()
def advantages(rewards, values, dones, last_value, gamma=0.99, lam=0.95):
    """Generalised advantage estimates and returns; rewards, values and dones are [time, env]."""
    alive = 1.0 - dones
    adv = rewards + gamma * torch.cat([values[1:], last_value[None]]) * alive - values
    decay = gamma * lam * alive
    shift = 1
    while shift < rewards.size(0):  # adv[t] += decay[t] * adv[t + 1], as a doubling scan
        adv = torch.cat([torch.addcmul(adv[:-shift], decay[:-shift], adv[shift:]), adv[-shift:]])
        decay = torch.cat([decay[:-shift] * decay[shift:], torch.zeros_like(decay[-shift:])])
        shift *= 2
    return adv, adv + values


def make_rollout(horizon, envs, obs_dim, act_dim, pin):
    obs = torch.randn(horizon + 1, envs, obs_dim)
    act = torch.randn(horizon, envs, act_dim)
    rew = obs[:-1].mean(dim=-1) - 0.1 * act.square().mean(dim=-1)
    done = (torch.rand(horizon, envs) < 0.01).float()
    return [x.pin_memory() if pin else x for x in (obs, act, rew, done)]


def make(device, small):
    horizon, envs, obs_dim, act_dim, hidden, minibatches = (
        (16, 4, 6, 2, 16, 2) if small else (256, 64, 48, 12, 256, 4)
    )
    torch.set_float32_matmul_precision("high")
    agent = ActorCritic(obs_dim, act_dim, hidden).to(device)
    optimizer = torch.optim.Adam(agent.parameters(), lr=3e-4, eps=1e-5, fused=True)
    rollouts = [make_rollout(horizon, envs, obs_dim, act_dim, device == "cuda") for _ in range(3)]
    turn = iter(range(10**6))

    def update(obs, act, logp_old, adv, ret):
        dist = agent.policy(obs)
        ratio = (dist.log_prob(act) - logp_old).exp()
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        policy_loss = -torch.minimum(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
        value_loss = 0.5 * (agent.value(obs) - ret).square().mean()
        loss = policy_loss + 0.5 * value_loss - 0.01 * dist.entropy().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(agent.parameters(), 0.5, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return policy_loss.detach(), value_loss.detach()

    def step():
        obs, act, rew, done = (x.to(device, non_blocking=True) for x in rollouts[next(turn) % 3])
        with torch.no_grad():
            values = agent.value(obs)
            logp = agent.policy(obs[:-1]).log_prob(act)
        adv, ret = advantages(rew, values[:-1], done, values[-1])
        flat = [x.flatten(0, 1) for x in (obs[:-1], act, logp, adv, ret)]
        for _ in range(2):
            for idx in torch.randperm(horizon * envs, device=device).chunk(minibatches):
                losses = update(*(x[idx] for x in flat))
        return (*losses, adv.abs().mean(), ret.abs().mean())

    return step
