"""Modules in plain torch: what vision and sequence models are made of, and what exporters find hard."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody calls it
from torch import Tensor, nn


class LstmTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.lstm = nn.LSTM(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 7)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


class GruTagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(60, 16)
        self.gru = nn.GRU(16, 12, bidirectional=True, batch_first=True)
        self.head = nn.Linear(24, 7)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.gru(self.embedding(ids))[0]).log_softmax(-1)


class GruWithState(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gru = nn.GRU(8, 16, num_layers=2, batch_first=True)

    def forward(self, series: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        return self.gru(series, state)


class PlainRnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.RNN(8, 12, nonlinearity="relu", batch_first=True)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        return self.rnn(series)


class LstmByCells(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(8, 12)

    def forward(self, series: Tensor) -> Tensor:
        hidden = cell = series.new_zeros(series.shape[0], 12)
        outputs = []
        for step in series.unbind(1):
            hidden, cell = self.cell(step, (hidden, cell))
            outputs.append(hidden)
        return torch.stack(outputs, 1)


class Conv1dNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(4, 8, 5, stride=2, padding=2)
        self.norm = nn.BatchNorm1d(8)
        self.second = nn.Conv1d(8, 16, 3, padding=1)
        self.head = nn.Linear(16, 5)

    def forward(self, signal: Tensor) -> Tensor:
        hidden = F.relu(self.norm(self.first(signal)))
        return self.head(F.gelu(self.second(hidden)).mean(-1))


class TemporalConvNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(4 if i == 0 else 8, 8, 3, dilation=2**i) for i in range(3))
        self.shortcut = nn.Conv1d(4, 8, 1)

    def forward(self, signal: Tensor) -> Tensor:
        hidden = signal
        for i, conv in enumerate(self.convs):
            shortcut = self.shortcut(hidden) if i == 0 else hidden
            hidden = F.relu(conv(F.pad(hidden, (2 * 2**i, 0)))) + shortcut
        return hidden


class WaveNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Conv1d(1, 8, 1)
        self.filters = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2**i) for i in range(2))
        self.gates = nn.ModuleList(nn.Conv1d(8, 8, 2, dilation=2**i) for i in range(2))
        self.skips = nn.ModuleList(nn.Conv1d(8, 6, 1) for _ in range(2))

    def forward(self, signal: Tensor) -> Tensor:
        hidden = self.start(signal)
        total = torch.zeros(())
        for i, (filter_, gate, skip) in enumerate(zip(self.filters, self.gates, self.skips, strict=True)):
            padded = F.pad(hidden, (2**i, 0))
            gated = torch.tanh(filter_(padded)) * torch.sigmoid(gate(padded))
            hidden = hidden + gated
            total = total + skip(gated)
        return F.relu(total)


class DepthwiseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.depthwise = nn.Conv2d(8, 16, 5, padding=2, groups=8)
        self.pointwise = nn.Conv2d(16, 12, 1)

    def forward(self, image: Tensor) -> Tensor:
        hidden = F.relu6(self.norm(self.stem(image)))
        return self.pointwise(F.silu(self.depthwise(hidden)))


class MobileNetV3(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.expand = nn.Conv2d(8, 24, 1)
        self.depthwise = nn.Conv2d(24, 24, 5, padding=2, groups=24)
        self.squeeze = nn.Conv2d(24, 6, 1)
        self.excite = nn.Conv2d(6, 24, 1)
        self.project = nn.Conv2d(24, 8, 1)
        self.head = nn.Linear(8, 5)

    def forward(self, image: Tensor) -> Tensor:
        stem = F.hardswish(self.stem(image))
        hidden = F.hardswish(self.depthwise(F.hardswish(self.expand(stem))))
        scale = F.hardsigmoid(self.excite(F.relu(self.squeeze(F.adaptive_avg_pool2d(hidden, 1)))))
        hidden = self.project(hidden * scale) + stem
        return self.head(F.adaptive_avg_pool2d(hidden, 1).flatten(1))


class Inception(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 4, 1)
        self.three = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, (1, 3), padding=(0, 1)))
        self.five = nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU(), nn.Conv2d(4, 6, (5, 1), padding=(2, 0)))
        self.pool = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(3, 5, 1))

    def forward(self, image: Tensor) -> Tensor:
        parts = [self.one(image), self.three(image), self.five(image), self.pool(image)]
        return F.avg_pool2d(F.relu(torch.cat(parts, 1)), 3, 2)


class DenseNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.BatchNorm2d(3 + 4 * i) for i in range(3))
        self.convs = nn.ModuleList(nn.Conv2d(3 + 4 * i, 4, 3, padding=1) for i in range(3))

    def forward(self, image: Tensor) -> Tensor:
        features = [image]
        for norm, conv in zip(self.norms, self.convs, strict=True):
            features.append(conv(F.relu(norm(torch.cat(features, 1)))))
        return F.adaptive_max_pool2d(torch.cat(features, 1), 1).flatten(1)


class ShuffleNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, stride=2, padding=1)
        self.branch = nn.Sequential(nn.Conv2d(8, 8, 1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1, groups=8))

    def forward(self, image: Tensor) -> Tensor:
        kept, changed = self.stem(image).chunk(2, 1)
        joined = torch.cat((kept, self.branch(changed)), 1)
        batch, channels, height, width = joined.shape
        return joined.view(batch, 2, channels // 2, height, width).transpose(1, 2).reshape(batch, -1, height, width)


class Vgg(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 12, 3, padding=1), nn.ELU()
        )
        self.head = nn.Sequential(nn.Linear(12, 16), nn.LeakyReLU(0.1), nn.Dropout(), nn.Linear(16, 4))

    def forward(self, image: Tensor) -> Tensor:
        return self.head(self.features(image).amax((2, 3))).softmax(-1)


class Unet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 16, 3, padding=1)])
        self.middle = nn.Conv2d(16, 16, 3, padding=1)
        self.up = nn.ModuleList([nn.ConvTranspose2d(16, 16, 2, 2), nn.ConvTranspose2d(8, 8, 2, 2)])
        self.join = nn.ModuleList([nn.Conv2d(32, 8, 3, padding=1), nn.Conv2d(16, 4, 3, padding=1)])

    def forward(self, image: Tensor) -> Tensor:
        first = F.relu(self.down[0](image))
        second = F.relu(self.down[1](F.max_pool2d(first, 2)))
        hidden = F.relu(self.middle(F.max_pool2d(second, 2)))
        hidden = F.relu(self.join[0](torch.cat((self.up[0](hidden), second), 1)))
        return self.join[1](torch.cat((self.up[1](hidden), first), 1)).sigmoid()


class UnetCropping(nn.Module):
    """Sizes that are no multiples: what was pooled is interpolated to the size of what it joins."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Conv2d(3, 8, 3, stride=2)
        self.middle = nn.Conv2d(8, 8, 3, padding=1)
        self.join = nn.Conv2d(11, 4, 3)

    def forward(self, image: Tensor) -> Tensor:
        hidden = F.relu(self.middle(F.relu(self.down(image))))
        hidden = F.interpolate(hidden, size=image.shape[2:], mode="bilinear", align_corners=False)
        return self.join(torch.cat((hidden, image), 1))


class FeaturePyramid(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3 if i == 0 else 8, 8, 3, stride=2, padding=1) for i in range(3))
        self.lateral = nn.ModuleList(nn.Conv2d(8, 6, 1) for _ in range(3))

    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        levels = []
        hidden = image
        for conv in self.down:
            hidden = F.relu(conv(hidden))
            levels.append(hidden)
        top = self.lateral[2](levels[2])
        outputs = [top]
        for i in (1, 0):
            top = self.lateral[i](levels[i]) + F.interpolate(top, size=levels[i].shape[-2:], mode="nearest")
            outputs.append(top)
        return tuple(outputs)


class PyramidPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(3, 4, 1) for _ in range(4))

    def forward(self, image: Tensor) -> Tensor:
        parts = [image]
        for conv, bins in zip(self.convs, (1, 2, 3, 6), strict=True):
            pooled = conv(F.adaptive_avg_pool2d(image, bins))
            parts.append(F.interpolate(pooled, size=image.shape[-2:], mode="bilinear", align_corners=True))
        return torch.cat(parts, 1)


class TransposedDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Linear(6, 16 * 3 * 3)
        self.first = nn.ConvTranspose2d(16, 8, 3, stride=2, padding=1, output_padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.ConvTranspose2d(8, 4, 4, stride=2, padding=1, groups=2)
        self.third = nn.ConvTranspose2d(4, 3, 3, dilation=2)

    def forward(self, latent: Tensor) -> Tensor:
        hidden = self.start(latent).view(-1, 16, 3, 3)
        hidden = F.relu(self.norm(self.first(hidden)))
        return torch.tanh(self.third(F.leaky_relu(self.second(hidden), 0.2)))


class Autoencoder1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.Sequential(nn.Conv1d(2, 8, 4, 2, 1), nn.ELU(), nn.Conv1d(8, 12, 4, 2, 1))
        self.up = nn.Sequential(nn.ConvTranspose1d(12, 8, 4, 2, 1), nn.ELU(), nn.ConvTranspose1d(8, 2, 4, 2, 1))

    def forward(self, signal: Tensor) -> Tensor:
        return self.up(self.down(signal))


class Conv3dNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv3d(2, 6, 3, padding=1)
        self.norm = nn.BatchNorm3d(6)
        self.head = nn.Conv3d(6, 4, (1, 3, 3), stride=(1, 2, 2))

    def forward(self, video: Tensor) -> Tensor:
        hidden = F.max_pool3d(F.relu(self.norm(self.conv(video))), (2, 1, 1))
        return self.head(hidden).mean((3, 4))


class MaskedPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(8, 12)

    def forward(self, values: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.proj(values)
        weights = mask.unsqueeze(-1).to(hidden.dtype)
        mean = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        largest = hidden.masked_fill(weights == 0, -1e9).max(1).values
        return F.normalize(mean, dim=-1), largest


class AttentionPooling(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(8, 1)

    def forward(self, series: Tensor) -> Tensor:
        weights = self.score(torch.tanh(series)).softmax(1)
        mean = (weights * series).sum(1)
        deviation = ((weights * series**2).sum(1) - mean**2).clamp(min=1e-6).sqrt()
        return torch.cat((mean, deviation), -1)


class TransformerEncoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, series: Tensor) -> Tensor:
        return self.encoder(series)


class TransformerPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)

    def forward(self, series: Tensor, target: Tensor) -> Tensor:
        size = target.shape[1]
        mask = torch.ones(size, size, dtype=torch.bool, device=target.device).triu(1)
        return self.model(series, target, tgt_mask=mask, tgt_is_causal=False)


class MultiheadAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True, add_bias_kv=True)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        return self.attention(series, series, series)


class TopK(nn.Module):
    def forward(self, scores: Tensor) -> tuple[Tensor, ...]:
        values, places = scores.topk(5)
        kept = torch.zeros_like(scores).scatter(1, places, values.softmax(-1))
        ordered, order = scores.sort(dim=1, descending=True)
        return values, places, kept, ordered, order, scores.argmax(-1)


class MixtureOfExperts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(8, 4)
        self.weights = nn.Parameter(torch.randn(4, 8, 8))

    def forward(self, tokens: Tensor) -> Tensor:
        scores, experts = self.router(tokens).softmax(-1).topk(2)
        scores = scores / scores.sum(-1, keepdim=True)
        outputs = torch.einsum("td,edf->tef", tokens, self.weights)
        chosen = outputs.gather(1, experts.unsqueeze(-1).expand(-1, -1, 8))
        return (chosen * scores.unsqueeze(-1)).sum(1)


class GatherScatter(nn.Module):
    def forward(self, values: Tensor, places: Tensor) -> tuple[Tensor, ...]:
        rows = torch.arange(values.shape[0], device=values.device).unsqueeze(1)
        picked = values[rows, places]
        gathered = values.gather(1, places.unsqueeze(-1).expand(-1, -1, 5))
        summed = torch.zeros_like(values).scatter_add(1, places.unsqueeze(-1).expand(-1, -1, 5), gathered)
        return picked, summed, values.index_select(1, torch.tensor([0, 3, 6])), values.flip(1).roll(2, 1)


class MessagePassing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.message = nn.Linear(12, 6)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, target = edges[0], edges[1]
        messages = F.relu(self.message(torch.cat((nodes[source], nodes[target]), -1)))
        return nodes + torch.zeros_like(nodes).index_add(0, target, messages)


class NonZero(nn.Module):
    def forward(self, values: Tensor) -> tuple[Tensor, Tensor]:
        places = (values > 0).nonzero()
        return places, values[values > 0.3] * 2


class MaskedSelect(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(6, 4)

    def forward(self, values: Tensor, keep: Tensor) -> Tensor:
        return self.proj(values[keep]).relu().sum(0)


class EmbeddingBag(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(60, 8, mode="mean")
        self.head = nn.Linear(8, 3)

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.embedding(ids))


class GridSample(nn.Module):
    def forward(self, image: Tensor, grid: Tensor) -> tuple[Tensor, ...]:
        return (
            F.grid_sample(image, grid, mode="bilinear", padding_mode="zeros", align_corners=False),
            F.grid_sample(image, grid, mode="bilinear", padding_mode="border", align_corners=True),
            F.grid_sample(image, grid, mode="nearest", padding_mode="reflection", align_corners=False),
        )


class SpatialTransformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.locate = nn.Linear(3 * 16, 6)

    def forward(self, image: Tensor) -> Tensor:
        pooled = F.avg_pool2d(image, 4).flatten(1)
        theta = self.locate(pooled).view(-1, 2, 3) * 0.3 + torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]).to(image)
        ys, xs = torch.meshgrid(torch.linspace(-1, 1, 16), torch.linspace(-1, 1, 16), indexing="ij")
        base = torch.stack((xs, ys, torch.ones_like(xs)), -1).view(1, 256, 3).to(image)
        grid = (base @ theta.transpose(1, 2)).view(-1, 16, 16, 2)
        return F.grid_sample(image, grid, align_corners=False)


class Interpolate(nn.Module):
    def __init__(self, mode: str, corners: bool | None) -> None:
        super().__init__()
        self.options: dict[str, Any] = {"mode": mode, "align_corners": corners}

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        return (
            F.interpolate(image, scale_factor=2.0, **self.options),
            F.interpolate(image, size=(11, 20), **self.options),
        )


class InterpolateToSize(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        small = F.max_pool2d(image, 3, 2, 1)
        return F.interpolate(small, size=image.shape[-2:], mode="bilinear", align_corners=False) - image


class PixelShuffle(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(12, 12, 3, padding=1)

    def forward(self, image: Tensor) -> Tensor:
        return F.pixel_shuffle(F.relu(self.conv(F.pixel_unshuffle(image, 2))), 2)


class EinsumNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 4, 8))

    def forward(self, left: Tensor, right: Tensor) -> tuple[Tensor, ...]:
        scores = torch.einsum("bid,dhe,bje->bhij", left, self.weight, right)
        mixed = torch.einsum("bhij,bjd->bihd", scores.softmax(-1), right)
        return mixed, torch.einsum("bihd->bd", mixed), torch.einsum("bii->bi", left @ left.transpose(1, 2))


class NormZoo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 1)
        self.batch = nn.BatchNorm2d(8)
        self.group = nn.GroupNorm(4, 8)
        self.instance = nn.InstanceNorm2d(8, affine=True)
        self.layer = nn.LayerNorm(8)
        self.local = nn.LocalResponseNorm(3)

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.instance(self.group(self.batch(self.conv(image))))
        hidden = self.layer(hidden.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return F.normalize(self.local(hidden), dim=1)


class NormZoo1d(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LayerNorm(8)
        self.rms = nn.RMSNorm(8)
        self.group = nn.GroupNorm(2, 8)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.group(self.rms(self.layer(series)).transpose(1, 2))
        centred = hidden - hidden.mean(-1, keepdim=True)
        return centred / (centred.var(-1, keepdim=True) + 1e-5).sqrt(), hidden.std(1)


class ActivationZoo(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.prelu = nn.PReLU(8)

    def forward(self, series: Tensor) -> Tensor:
        parts = [
            F.elu(series),
            F.selu(series),
            F.celu(series, 0.7),
            F.gelu(series),
            F.gelu(series, approximate="tanh"),
            F.silu(series),
            F.mish(series),
            F.softplus(series),
            F.softsign(series),
            F.hardtanh(series, -0.5, 0.8),
            F.hardshrink(series),
            F.softshrink(series),
            F.tanhshrink(series),
            F.logsigmoid(series),
            F.relu6(series),
            F.threshold(series, 0.1, -2.0),
            self.prelu(series.transpose(1, 2)).transpose(1, 2),
            F.glu(series).repeat(1, 1, 2),
            torch.erf(series),
            torch.log1p(series.abs()),
            torch.expm1(series),
            torch.atan2(series, series + 2),
            torch.rsqrt(series.abs() + 1),
            series.sign() * series.abs().pow(0.3),
            torch.round(series * 3),
            series.frac(),
            torch.remainder(series, 0.7),
            torch.fmod(series, 0.7),
            torch.floor_divide(series, 0.4),
            torch.nan_to_num(series),
        ]
        return torch.cat(parts, -1)


class PoolZoo(nn.Module):
    def forward(self, image: Tensor) -> tuple[Tensor, ...]:
        return (
            F.max_pool2d(image, 3, 2, 1, ceil_mode=True),
            F.avg_pool2d(image, 3, 2, 1, count_include_pad=False),
            F.avg_pool2d(image, (3, 2), 2, ceil_mode=True),
            F.max_pool2d(image, 2, 1, dilation=2),
            F.lp_pool2d(image.abs() + 0.1, 2, 3, 2),
            image.mean((2, 3)),
            image.amax((2, 3)),
        )


class PadZoo(nn.Module):
    def forward(self, image: Tensor) -> Tensor:
        reflected = F.pad(image, (1, 2, 3, 1), mode="reflect")
        repeated = F.pad(reflected, (2, 0, 1, 1), mode="replicate")
        wrapped = F.pad(repeated, (1, 1, 2, 2), mode="circular")
        return F.pad(wrapped, (0, -2, 1, -1), value=0.5)


class ReduceZoo(nn.Module):
    def forward(self, series: Tensor) -> tuple[Tensor, ...]:
        return (
            series.logsumexp(1),
            series.norm(dim=-1),
            series.norm(p=1, dim=1),
            series.prod(-1),
            series.var(1),
            series.max(-1).indices,
            series.min(1).values,
            (series > 0).any(-1),
            (series > -9).all(1),
            series.mean(),
            series.aminmax(dim=-1).max,
            series.abs().max(),
            torch.count_nonzero(series > 0.2, dim=1),
        )


class IndexZoo(nn.Module):
    def forward(self, series: Tensor) -> tuple[Tensor, ...]:
        last = series[:, -1]
        return (
            last,
            series[:, 1:-1:2],
            series[:, ::2, 3:],
            series[..., [5, 0, 2]],
            series[:, :3].flip(-1),
            torch.where(series > 0, series, last.unsqueeze(1)),
            series.repeat_interleave(2, 1),
            series.tile(1, 2, 1),
            torch.stack(series.split(3, -1)[:2], 1),
            series.narrow(1, 1, 4).diagonal(dim1=1, dim2=2),
            F.one_hot(series.argmax(-1), 8),
            series.movedim(1, 0).unflatten(2, (2, 4)),
        )


class MlpMixer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 16, 4, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(16) for _ in range(2))
        self.tokens = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))
        self.channels = nn.Sequential(nn.Linear(16, 24), nn.GELU(), nn.Linear(24, 16))

    def forward(self, image: Tensor) -> Tensor:
        hidden = self.patches(image).flatten(2).transpose(1, 2)
        hidden = hidden + self.tokens(self.norms[0](hidden).transpose(1, 2)).transpose(1, 2)
        return (hidden + self.channels(self.norms[1](hidden))).mean(1)


class ResidualQuantizer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.books = nn.Parameter(torch.randn(3, 16, 8))

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        rest, total, codes = series, torch.zeros_like(series), []
        for book in self.books:
            distance = (rest.unsqueeze(2) - book).pow(2).sum(-1)
            code = distance.argmin(-1)
            chosen = F.embedding(code, book)
            rest, total = rest - chosen, total + chosen
            codes.append(code)
        return total, torch.stack(codes)


class SpectralMixer(nn.Module):
    def forward(self, series: Tensor) -> Tensor:
        spectrum = torch.fft.rfft(series, dim=1)
        return torch.cat((spectrum.real, spectrum.imag), -1)


class Cumulative(nn.Module):
    def forward(self, series: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return series.cumsum(1), series.softmax(-1).cumsum(-1).flip(1), series.tril().triu(-2)


class UnfoldFold(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(48, 48)

    def forward(self, image: Tensor) -> Tensor:
        patches = F.unfold(image, 4, stride=4).transpose(1, 2)
        return F.fold(self.proj(patches).transpose(1, 2), (12, 16), 4, stride=4)


class Distance(nn.Module):
    def forward(self, points: Tensor, centres: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        distance = torch.cdist(points, centres)
        nearest = distance.argmin(-1)
        return distance, nearest, centres[nearest] - points


class DeepSets(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(3, 16), nn.ReLU(), nn.Linear(16, 16))
        self.head = nn.Linear(32, 4)

    def forward(self, points: Tensor) -> Tensor:
        hidden = self.embed(points)
        return self.head(torch.cat((hidden.max(1).values, hidden.mean(1)), -1))


class CosineRetrieval(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.keys = nn.Parameter(torch.randn(20, 8))

    def forward(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        scores = F.cosine_similarity(queries.unsqueeze(1), self.keys.unsqueeze(0), dim=-1)
        return scores, scores.topk(3, dim=-1).values


class TriangularAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(8, 24)

    def forward(self, series: Tensor) -> Tensor:
        batch, time, _ = series.shape
        q, k, v = self.qkv(series).view(batch, time, 3, 2, 4).permute(2, 0, 3, 1, 4)
        places = torch.arange(time, device=series.device)
        bias = -(places[:, None] - places[None, :]).abs().to(series.dtype)
        scores = q @ k.transpose(-1, -2) / 2 + bias
        scores = scores.masked_fill(places[None, :] > places[:, None], float("-inf"))
        return (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, time, 8)


@torch.jit.script
def _repeated(series: Tensor, steps: Tensor) -> Tensor:
    total = torch.zeros_like(series)
    for i in range(int(steps)):
        total = total * 0.5 + series * float(i + 1)
    return total


class ScriptedLoop(nn.Module):
    def forward(self, series: Tensor, steps: Tensor) -> Tensor:
        return _repeated(series, steps)


@torch.jit.script
def _halved(values: Tensor) -> Tensor:
    while bool(values.abs().max() > 1.0):
        values = values * 0.5
    return values


class ScriptedWhile(nn.Module):
    def forward(self, values: Tensor) -> Tensor:
        return _halved(values * 5)


@torch.jit.script
def _chosen(series: Tensor) -> Tensor:
    if bool(series.sum() > 0):
        return series.mean(1)
    return series[:, 0] * 2.0


class ScriptedBranch(nn.Module):
    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        return _chosen(series), _chosen(-series)


@torch.jit.script
def _decoded(state: Tensor, weight: Tensor, steps: int) -> Tensor:
    outputs = torch.zeros(state.shape[0], 1, state.shape[1], dtype=state.dtype)
    for _ in range(steps):
        state = torch.tanh(state @ weight)
        outputs = torch.cat((outputs, state.unsqueeze(1)), 1)
    return outputs[:, 1:]


class ScriptedDecoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 8))

    def forward(self, state: Tensor) -> Tensor:
        return _decoded(state, self.weight, 4)
