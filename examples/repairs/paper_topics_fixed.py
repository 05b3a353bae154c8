"""Topics of papers from a citation graph, full-batch training (torch_geometric)."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing


class CitationConv(MessagePassing):
    """Mean over the cited papers plus a transformed copy of the paper itself."""

    def __init__(self, in_channels, out_channels):
        super().__init__(aggr="mean")
        self.lin_neigh = nn.Linear(in_channels, out_channels, bias=False)
        self.lin_self = nn.Linear(in_channels, out_channels)

    def forward(self, x, edge_index):
        out = self.propagate(edge_index, x=self.lin_neigh(x))
        return out + self.lin_self(x)

    def message(self, x_j):
        return x_j


class TopicNet(nn.Module):
    def __init__(self, in_channels, hidden, num_classes, num_layers=3, dropout=0.0):
        super().__init__()
        self.encoder = nn.Linear(in_channels, hidden)
        self.convs = nn.ModuleList(CitationConv(hidden, hidden) for _ in range(num_layers))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(num_layers))
        self.dropout = dropout
        self.out = nn.Linear(hidden, num_classes)

    def forward(self, x, edge_index):
        x = F.relu(self.encoder(x))
        for conv, norm in zip(self.convs, self.norms, strict=False):
            h = F.relu(norm(conv(x, edge_index)))
            x = x + F.dropout(h, p=self.dropout, training=self.training)
        return self.out(x)


def random_citations(num_nodes, num_edges, num_features, num_classes, device):
    source = torch.randint(num_nodes, (num_edges,), device=device)
    target = torch.randint(num_nodes, (num_edges,), device=device).sort().values
    data = Data(
        x=torch.randn(num_nodes, num_features, device=device),
        edge_index=torch.stack([source, target]),
        y=torch.randint(num_classes, (num_nodes,), device=device),
    )
    data.train_mask = torch.rand(num_nodes, device=device) < 0.5
    data.train_index = data.train_mask.nonzero().squeeze(1)
    return data


def make(device, small):
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    nodes, edges, hidden = (200, 2000, 32) if small else (120_000, 2_400_000, 256)
    data = random_citations(nodes, edges, 128, 40, device)
    model = TopicNet(128, hidden, 40).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    model.train()

    def step():
        optimizer.zero_grad(set_to_none=True)
        logits = model(data.x, data.edge_index)
        loss = F.cross_entropy(logits[data.train_index], data.y[data.train_index])
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step
