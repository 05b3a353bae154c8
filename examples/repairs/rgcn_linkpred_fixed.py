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


def relational_conv(conv, x, edges, norm):
    """conv (an RGCNConv, mean aggregation) on a static graph: one product, gather and scatter for all relations."""
    src, dst, rel = edges
    weight = (conv.comp @ conv.weight.flatten(1)).view(conv.num_relations, conv.in_channels, -1)
    h = (x @ weight.transpose(0, 1).flatten(1)).view(
        -1, conv.out_channels
    )  # row: node * num_relations + relation
    msg = h.index_select(0, src * conv.num_relations + rel) * norm
    return (x @ conv.root + conv.bias).index_add(0, dst, msg)


def relation_norm(data, num_relations):
    """1 / number of the target's incoming edges of the same relation, one value an edge."""
    key = data.edge_type * data.num_nodes + data.edge_index[1]
    return 1.0 / torch.bincount(key, minlength=num_relations * data.num_nodes)[key].float().unsqueeze(1)


class Encoder(nn.Module):
    """Entity embeddings refined by two relational graph convolutions."""

    def __init__(self, num_nodes, num_relations, dim, num_bases):
        super().__init__()
        self.emb = nn.Parameter(torch.empty(num_nodes, dim))
        self.conv1 = RGCNConv(dim, dim, num_relations, num_bases=num_bases)
        self.conv2 = RGCNConv(dim, dim, num_relations, num_bases=num_bases)
        nn.init.xavier_uniform_(self.emb)

    def forward(self, edges, norm):
        x = relational_conv(self.conv1, self.emb, edges, norm).relu()
        return relational_conv(self.conv2, x, edges, norm)


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
    norm = relation_norm(data, num_relations)
    edges = (*data.edge_index, data.edge_type)
    optimizer = torch.optim.Adam(params, lr=1e-3, fused=True)

    def step():
        z = encoder(edges, norm)
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
