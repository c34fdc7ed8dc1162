"""Models of libraries that nobody here wrote, small and with random weights: library -> name -> how to build one.

What builds one returns a module, its arguments and its keywords; libraries are imported when they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Built = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class Call(nn.Module):
    """Any function of modules as a module, which is what is captured."""

    def __init__(self, run: Callable[..., Any], **parts: nn.Module) -> None:
        super().__init__()
        self.run = run
        for name, part in parts.items():
            self.add_module(name, part)

    def forward(self, *args: Any) -> Any:
        return self.run(self, *args)


# -- diffusers ---------------------------------------------------------------------------------------------------------


def unet() -> Built:
    from diffusers import UNet2DModel

    model = UNet2DModel(
        sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "UpBlock2D"),
        norm_num_groups=8, attention_head_dim=8,
    )  # fmt: skip
    return model, (torch.randn(2, 3, 16, 16), 10), {}


def unet_with_text() -> Built:
    from diffusers import UNet2DConditionModel

    model = UNet2DConditionModel(
        sample_size=16, in_channels=4, out_channels=4, layers_per_block=1, block_out_channels=(16, 32),
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=16, norm_num_groups=8, attention_head_dim=8,
    )  # fmt: skip
    return model, (torch.randn(2, 4, 16, 16), torch.tensor([3, 7]), torch.randn(2, 5, 16)), {}


def autoencoder() -> Built:
    from diffusers import AutoencoderKL

    model = AutoencoderKL(
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2, norm_num_groups=8,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=4,
    )  # fmt: skip
    return model, (torch.randn(1, 3, 16, 16),), {"sample_posterior": True}


def diffusion_transformer() -> Built:
    from diffusers import DiTTransformer2DModel

    model = DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=4, num_layers=2, sample_size=8, norm_num_groups=8
    )
    return model, (torch.randn(2, 4, 8, 8), torch.tensor([3, 7]), torch.tensor([0, 1])), {}


def flux() -> Built:
    from diffusers import FluxTransformer2DModel

    model = FluxTransformer2DModel(
        in_channels=4, num_layers=1, num_single_layers=1, attention_head_dim=16, num_attention_heads=2,
        joint_attention_dim=32, pooled_projection_dim=32, axes_dims_rope=(4, 4, 8),
    )  # fmt: skip
    inputs = {
        "hidden_states": torch.randn(1, 16, 4), "encoder_hidden_states": torch.randn(1, 6, 32),
        "pooled_projections": torch.randn(1, 32), "timestep": torch.tensor([0.5]), "img_ids": torch.zeros(16, 3),
        "txt_ids": torch.zeros(6, 3),
    }  # fmt: skip
    return model, (), inputs


def vector_quantised() -> Built:
    from diffusers import VQModel

    model = VQModel(
        block_out_channels=(16, 32), down_block_types=("DownEncoderBlock2D",) * 2, norm_num_groups=8,
        up_block_types=("UpDecoderBlock2D",) * 2, latent_channels=3, num_vq_embeddings=8,
    )  # fmt: skip
    return model, (torch.randn(1, 3, 16, 16),), {}


def sampling(scheduler: str) -> Callable[[], Built]:
    """Four steps from noise to a picture, as a pipeline does them."""

    def build() -> Built:
        import diffusers

        def run(self: Any, x: Tensor) -> Tensor:
            steps = getattr(diffusers, scheduler)(num_train_timesteps=100)
            steps.set_timesteps(4)
            for step in steps.timesteps:
                x = steps.step(self.unet(x, step).sample, step, x).prev_sample
            return x

        return Call(run, unet=unet()[0]), (torch.randn(1, 3, 16, 16),), {}

    return build


# -- peft --------------------------------------------------------------------------------------------------------------


def adapted(config: str, **settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        import peft
        from transformers import GPT2Config, GPT2LMHeadModel

        base = GPT2LMHeadModel(GPT2Config(vocab_size=100, n_positions=32, n_embd=16, n_layer=2, n_head=2))
        model = peft.get_peft_model(base, getattr(peft, config)(task_type="CAUSAL_LM", **settings))
        for parameter in model.parameters():  # adapters begin as zeros, which would hide their edges
            if parameter.requires_grad:
                nn.init.normal_(parameter, std=0.1)
        return model, (), {"input_ids": torch.randint(0, 100, (2, 7)), "use_cache": False}

    return build


# -- torch_geometric ---------------------------------------------------------------------------------------------------


def graph() -> tuple[Tensor, Tensor, Tensor]:
    """Nodes of two small graphs, their edges, and which graph each is of; no edge leads to the last node."""
    edges = torch.tensor([[0, 1, 1, 2, 3, 0, 4, 5, 5, 6, 7], [1, 0, 2, 1, 0, 3, 5, 4, 6, 5, 4]])
    return torch.randn(8, 6), edges, torch.tensor([0] * 4 + [1] * 4)


def convolution(name: str, *shape: Any, **settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        from torch_geometric import nn as geometric

        def run(self: Any, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
            x = torch.relu(self.first(x, edges))
            return self.head(geometric.global_mean_pool(x, batch))

        layer = getattr(geometric, name)(*(shape or (6, 8)), **settings)
        with torch.no_grad():
            width = layer.eval()(*graph()[:2]).shape[1]
        return Call(run, first=layer, head=nn.Linear(width, 3)), graph(), {}

    return build


def geometric(name: str, **settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        from torch_geometric.nn import models

        return getattr(models, name)(**settings), graph()[:2], {}

    return build


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8))


def isomorphism() -> Built:
    return convolution("GINConv", perceptron())()


def edge_convolution() -> Built:
    return convolution("EdgeConv", nn.Sequential(nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 8)))()


def relations() -> Built:
    from torch_geometric.nn import RGCNConv

    x, edges, _ = graph()
    return RGCNConv(6, 8, num_relations=3), (x, edges, torch.arange(edges.shape[1]) % 3), {}


def heterogeneous() -> Built:
    from torch_geometric.nn import HeteroConv, SAGEConv

    model = HeteroConv({("a", "to", "b"): SAGEConv((-1, -1), 4), ("b", "of", "a"): SAGEConv((-1, -1), 4)}, aggr="sum")
    nodes = {"a": torch.randn(3, 5), "b": torch.randn(4, 6)}
    edges = {("a", "to", "b"): torch.tensor([[0, 1, 2], [0, 3, 3]]), ("b", "of", "a"): torch.tensor([[0, 1], [2, 2]])}
    model(nodes, edges)  # lazy layers find their widths
    return model, (nodes, edges), {}


def pooled() -> Built:
    from torch_geometric import nn as geometric

    def run(self: Any, x: Tensor, edges: Tensor, batch: Tensor) -> Tensor:
        x, edges, _, batch, *_ = self.pool(self.first(x, edges), edges, None, batch)
        return self.read(x, batch)

    parts = {"first": geometric.GraphConv(6, 8), "pool": geometric.TopKPooling(8, 0.5), "read": geometric.Set2Set(8, 2)}
    return Call(run, **parts), graph(), {}


def global_attention() -> Built:
    from torch_geometric import nn as geometric

    return geometric.GPSConv(6, geometric.GINConv(nn.Linear(6, 6)), heads=2), (*graph(),), {}


# -- kornia ------------------------------------------------------------------------------------------------------------


def filters() -> Built:
    import kornia

    def run(self: Any, x: Tensor) -> Tensor:
        x = kornia.filters.gaussian_blur2d(x, (5, 5), (1.5, 1.5))
        edges = kornia.filters.sobel(kornia.color.rgb_to_grayscale(x))
        return kornia.enhance.adjust_gamma(edges.clamp(0, 1) + 0.1, 0.7)

    return Call(run), (torch.rand(2, 3, 16, 16),), {}


def canny() -> Built:
    import kornia

    return kornia.filters.Canny(), (torch.rand(1, 3, 16, 16),), {}


def warp() -> Built:
    import kornia

    def run(self: Any, x: Tensor, angle: Tensor) -> Tensor:
        turned = kornia.geometry.transform.rotate(x, angle)
        return kornia.geometry.transform.resize(kornia.color.rgb_to_hsv(turned), (8, 8))

    return Call(run), (torch.rand(2, 3, 16, 16), torch.tensor([10.0, -35.0])), {}


def augmentation() -> Built:
    import kornia.augmentation as augment

    model = augment.AugmentationSequential(
        augment.RandomAffine(20.0, p=1.0), augment.ColorJitter(0.1, 0.1, 0.1, 0.1, p=1.0), augment.RandomErasing(p=1.0)
    )
    return model, (torch.rand(2, 3, 16, 16),), {}


def vision_transformer() -> Built:
    from kornia.models.vit import VisionTransformer

    model = VisionTransformer(image_size=32, patch_size=16, embed_dim=32, depth=2, num_heads=2)
    return model, (torch.rand(1, 3, 32, 32),), {}


def descriptor() -> Built:
    import kornia.feature

    return kornia.feature.HardNet(pretrained=False), (torch.rand(4, 1, 32, 32),), {}


def feature(name: str, *shape: int, **settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        import kornia.feature

        return getattr(kornia.feature, name)(**settings), (torch.rand(*shape),), {}

    return build


def matcher() -> Built:
    import kornia.feature

    images = {"image0": torch.rand(1, 1, 32, 32), "image1": torch.rand(1, 1, 32, 32)}
    return kornia.feature.LoFTR(pretrained=None), (images,), {}


# -- snntorch ----------------------------------------------------------------------------------------------------------


def spiking(neuron: str, *settings: Any, **more: Any) -> Callable[[], Built]:
    """A layer of neurons over ten steps of time."""

    def build() -> Built:
        import snntorch

        def run(self: Any, x: Tensor) -> Tensor:
            states = self.neuron.reset_mem()
            states = states if isinstance(states, tuple) else (states,)
            spikes = []
            for _ in range(10):
                spike, *states = self.neuron(self.first(x), *states)
                spikes.append(self.last(spike))
            return torch.stack(spikes).sum(0)

        parts = {"first": nn.Linear(6, 8), "last": nn.Linear(8, 3)}
        return Call(run, neuron=getattr(snntorch, neuron)(*settings, **more), **parts), (torch.rand(4, 6),), {}

    return build


# -- torchdiffeq -------------------------------------------------------------------------------------------------------


class Field(nn.Module):
    """What a state changes to."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 4))

    def forward(self, time: Tensor, state: Tensor) -> Tensor:
        return self.layers(state) * torch.cos(time)


def equation(solver: str, function: str = "odeint", **settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        import torchdiffeq

        def run(self: Any, state: Tensor, times: Tensor) -> Tensor:
            return getattr(torchdiffeq, function)(self.field, state, times, method=solver, **settings)

        return Call(run, field=Field()), (torch.randn(3, 4), torch.linspace(0, 1, 4)), {}

    return build


# -- mambapy -----------------------------------------------------------------------------------------------------------


def mamba(**settings: Any) -> Callable[[], Built]:
    def build() -> Built:
        from mambapy.mamba import Mamba, MambaConfig

        return Mamba(MambaConfig(d_model=16, n_layers=2, **settings)), (torch.randn(2, 16, 16),), {}

    return build


def jamba() -> Built:
    """Mamba, attention and a mixture of experts, in turns."""
    from mambapy.jamba import Jamba, JambaLMConfig

    config = JambaLMConfig(
        d_model=16, n_layers=4, mlp_size=32, num_attention_heads=4, num_key_value_heads=2, num_experts=4,
        attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, expert_layer_offset=1,
        num_experts_per_tok=2, inner_layernorms=True, use_cuda=False,
    )  # fmt: skip
    return Jamba(config), (torch.randn(2, 8, 16),), {}


# -- YOLO --------------------------------------------------------------------------------------------------------------


def yolo(config: str, task: str = "DetectionModel") -> Callable[[], Built]:
    def build() -> Built:
        from ultralytics.nn import tasks

        return getattr(tasks, task)(config, verbose=False), (torch.rand(2, 3, 64, 64),), {}

    return build


CASES: dict[str, dict[str, Callable[[], Built]]] = {
    "diffusers": {
        "UNet2DModel": unet,
        "UNet2DConditionModel": unet_with_text,
        "AutoencoderKL": autoencoder,
        "DiTTransformer2DModel": diffusion_transformer,
        "FluxTransformer2DModel": flux,
        "VQModel": vector_quantised,
        "4 steps of DDPM": sampling("DDPMScheduler"),
        "4 steps of DDIM": sampling("DDIMScheduler"),
        "4 steps of DPM-Solver++": sampling("DPMSolverMultistepScheduler"),
    },
    "peft": {
        "LoRA": adapted("LoraConfig", r=4, lora_dropout=0.1),
        "DoRA": adapted("LoraConfig", r=4, use_dora=True),
        "IA3": adapted("IA3Config"),
        "prefix tuning": adapted("PrefixTuningConfig", num_virtual_tokens=3),
        "prompt tuning": adapted("PromptTuningConfig", num_virtual_tokens=3),
    },
    "torch_geometric": {
        "GCNConv": convolution("GCNConv"),
        "GATConv": convolution("GATConv", 6, 8, heads=2),
        "GATv2Conv": convolution("GATv2Conv", 6, 8, heads=2),
        "TransformerConv": convolution("TransformerConv", 6, 8, heads=2),
        "SAGEConv": convolution("SAGEConv"),
        "SAGEConv, max": convolution("SAGEConv", 6, 8, aggr="max"),
        "SAGEConv, three aggregations": convolution("SAGEConv", 6, 8, aggr=["mean", "std", "softmax"]),
        "GINConv": isomorphism,
        "EdgeConv": edge_convolution,
        "GAT, two layers": geometric("GAT", in_channels=6, hidden_channels=8, num_layers=2, dropout=0.2),
        "APPNP": convolution("APPNP", 3, 0.1),
        "ChebConv": convolution("ChebConv", 6, 8, K=3),
        "RGCNConv": relations,
        "HeteroConv": heterogeneous,
        "TopKPooling, Set2Set": pooled,
        "GPSConv": global_attention,
        "PNAConv": convolution(
            "PNAConv",
            6,
            8,
            aggregators=["mean", "max", "std"],
            scalers=["identity", "amplification"],
            deg=torch.tensor([1, 4, 3]),
        ),
        "GraphUNet": geometric("GraphUNet", in_channels=6, hidden_channels=8, out_channels=3, depth=2),
    },
    "kornia": {
        "blur, Sobel, gamma": filters,
        "Canny": canny,
        "rotate, HSV, resize": warp,
        "AugmentationSequential": augmentation,
        "VisionTransformer": vision_transformer,
        "HardNet": descriptor,
        "SIFT descriptor": feature("SIFTDescriptor", 4, 1, 32, 32, patch_size=32),
        "KeyNet": feature("KeyNet", 1, 1, 32, 32, pretrained=False),
        "DISK": feature("DISK", 1, 3, 32, 32),
        "LoFTR": matcher,
    },
    "snntorch": {
        "Leaky": spiking("Leaky", 0.9),
        "Synaptic": spiking("Synaptic", 0.9, 0.8),
        "Alpha": spiking("Alpha", 0.9, 0.8),
        "RLeaky": spiking("RLeaky", 0.9, linear_features=8),
        "Lapicque": spiking("Lapicque", 0.9),
        "SLSTM": spiking("SLSTM", 8, 8),
        "RSynaptic": spiking("RSynaptic", 0.9, 0.8, linear_features=8),
    },
    "torchdiffeq": {
        "dopri5": equation("dopri5"),
        "rk4": equation("rk4"),
        "euler": equation("euler"),
        "adaptive_heun": equation("adaptive_heun", rtol=1e-2, atol=1e-2),
        "implicit_adams": equation("implicit_adams"),
        "dopri5, adjoint": equation("dopri5", "odeint_adjoint", rtol=1e-4, atol=1e-4),
    },
    "mambapy": {
        "Mamba, parallel scan": mamba(pscan=True),
        "Mamba, sequential scan": mamba(pscan=False),
        "Mamba, inner norms": mamba(inner_layernorms=True),
        "Jamba": jamba,
    },
    "YOLO (ultralytics)": {
        "yolov8n": yolo("yolov8n.yaml"),
        "yolov8n-seg": yolo("yolov8n-seg.yaml", "SegmentationModel"),
        "yolov8n-pose": yolo("yolov8n-pose.yaml", "PoseModel"),
        "yolo11n": yolo("yolo11n.yaml"),
        "yolov10n": yolo("yolov10n.yaml"),
        "yolo11n-obb": yolo("yolo11n-obb.yaml", "OBBModel"),
        "yolo11n-cls": yolo("yolo11n-cls.yaml", "ClassificationModel"),
        "rtdetr-resnet50": yolo("rtdetr-resnet50.yaml", "RTDETRDetectionModel"),
    },
}
