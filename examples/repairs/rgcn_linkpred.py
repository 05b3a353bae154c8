"""Relational GCN encoder with a DistMult decoder: link prediction on a WordNet-like knowledge graph.

Each step encodes the whole training graph, scores a batch of true triples against corrupted ones and updates
the
encoder, the entity embeddings and the relation vectors."""

import torch
import torch.nn.functional as F
from torch import nn
from torch_geometric.data import Data
from torch_geometric.nn import RGCNConv

STEPS = 4


class Encoder(nn.Module):
    """Entity embeddings refined by two relational graph convolutions."""

    def __init__(self, num_nodes, num_relations, dim, num_bases):
        super().__init__()
        self.emb = nn.Parameter(torch.empty(num_nodes, dim))
        self.conv1 = RGCNConv(dim, dim, num_relations, num_bases=num_bases)
        self.conv2 = RGCNConv(dim, dim, num_relations, num_bases=num_bases)
        nn.init.xavier_uniform_(self.emb)

    def forward(self, edge_index, edge_type):
        x = self.conv1(self.emb, edge_index, edge_type).relu()
        return self.conv2(x, edge_index, edge_type)


class DistMult(nn.Module):
    def __init__(self, num_relations, dim):
        super().__init__()
        self.rel = nn.Parameter(torch.empty(num_relations, dim))
        nn.init.xavier_uniform_(self.rel)

    def forward(self, z, head, tail, rel):
        return (z.index_select(0, head) * F.embedding(rel, self.rel) * z.index_select(0, tail)).sum(dim=-1)


def make_graph(num_nodes, num_edges, num_relations):
    """Half of the relations are the inverses of the other half; frequencies follow a power law."""
    base = num_relations // 2
    freq = 1.0 / torch.arange(1, base + 1).float()
    rel = torch.multinomial(freq, num_edges, replacement=True)
    head, tail = torch.randint(num_nodes, (2, num_edges))
    edge_index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
    return Data(edge_index=edge_index, edge_type=torch.cat([rel, rel + base]), num_nodes=num_nodes)


def make(device, small):
    num_nodes, num_edges, num_relations, dim, batch = (
        (200, 600, 6, 16, 64) if small else (40943, 86835, 22, 128, 8192)
    )
    torch.set_float32_matmul_precision("high")
    data = make_graph(num_nodes, num_edges, num_relations).to(device)
    encoder = Encoder(num_nodes, num_relations, dim, num_bases=4).to(device)
    decoder = DistMult(num_relations, dim).to(device)
    params = [*encoder.parameters(), *decoder.parameters()]
    optimizer = torch.optim.Adam(params, lr=1e-3, fused=True)

    def step():
        z = encoder(data.edge_index, data.edge_type)
        pos = torch.randint(data.edge_type.numel(), (batch,), device=device)
        head, tail = data.edge_index[:, pos]
        rel = data.edge_type[pos]
        corrupt = torch.randint(num_nodes, (batch,), device=device)
        score = torch.cat([decoder(z, head, tail, rel), decoder(z, head, corrupt, rel)])
        target = torch.cat([torch.ones_like(score[:batch]), torch.zeros_like(score[batch:])])
        reg = z.pow(2).mean() + decoder.rel.pow(2).mean()
        loss = F.binary_cross_entropy_with_logits(score, target) + 1e-2 * reg
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0, foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    return step
