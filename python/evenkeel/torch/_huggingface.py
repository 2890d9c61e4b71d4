"""Hugging Face's Llama-style RMSNorms: which classes they are, and their forward by evenkeel.

All of them are x / sqrt(mean(x^2) + eps) * weight over the last dimension; those with 1 + weight are none of them.
_replace.py reads the table. SPDX-License-Identifier: MIT
"""

from typing import Any

import torch
from torch import Tensor

from evenkeel.torch._functional import rms_norm

_VARIANCE_EPSILON = """
    AXK1RMSNorm AXK2RMSNorm AfmoeRMSNorm Aimv2RMSNorm ApertusRMSNorm ArceeRMSNorm AriaTextRMSNorm
    BailingHybridRMSNorm BambaRMSNorm BeamRMSNorm BitNetRMSNorm BltRMSNorm ChameleonRMSNorm ClvpRMSNorm
    Cohere2MoeRMSNorm Cosmos3EdgeTextRMSNorm CsmRMSNorm CwmRMSNorm DeepseekOcr2TextRMSNorm DeepseekOcr2VisionRMSNorm
    DeepseekV2RMSNorm DeepseekV32RMSNorm DeepseekV3RMSNorm DeepseekV4RMSNorm Deimv2RMSNorm DiaRMSNorm
    DiffLlamaRMSNorm DogeRMSNorm Dots1RMSNorm Emu3RMSNorm Ernie4_5RMSNorm Ernie4_5_MoeRMSNorm Ernie4_5_VLMoeRMSNorm
    EuroBertRMSNorm EvollaRMSNorm Exaone4RMSNorm Exaone4_5_RMSNorm ExaoneMoeRMSNorm FalconH1RMSNorm
    FalconMambaRMSNorm FlexOlmoRMSNorm FlintRMSNorm Glm4MoeLiteRMSNorm Glm4MoeRMSNorm Glm4RMSNorm Glm4vMoeRMSNorm
    Glm4vMoeTextRMSNorm Glm4vRMSNorm Glm5NextRMSNorm Glm5NextTextRMSNorm GlmImageRMSNorm GlmMoeDsaRMSNorm
    GlmOcrRMSNorm GlmRMSNorm GptOssRMSNorm Granite4VisionTextRMSNorm GraniteMoeHybridRMSNorm GraniteMoeRMSNorm
    GraniteMoeSWARMSNorm GraniteMoeSharedRMSNorm GraniteRMSNorm GraniteSWARMSNorm HYV3RMSNorm HYV4RMSNorm
    HeliumRMSNorm HiggsAudioV2RMSNorm HunYuanDenseV1RMSNorm HunYuanMoEV1RMSNorm HunYuanVLRMSNorm HyperCLOVAXRMSNorm
    Idefics2RMSNorm Idefics3RMSNorm IdeficsRMSNorm InklingRMSNorm InternVLVisionRMSNorm JambaRMSNorm JetMoeRMSNorm
    KimiLinearRMSNorm Kolibri1RMSNorm Kosmos2_5LayerNorm LagunaRMSNorm Lfm2MoeRMSNorm Lfm2RMSNorm LightOnOcrRMSNorm
    LlamaRMSNorm LongT5LayerNorm LongcatFlashRMSNorm MT5LayerNorm Mamba2RMSNorm MambaRMSNorm MellumRMSNorm
    MiMoV2FlashRMSNorm MiniCPM3RMSNorm MiniMaxM2RMSNorm MiniMaxRMSNorm Ministral3RMSNorm MinistralRMSNorm
    Mistral3RMSNorm Mistral4RMSNorm MistralLarge4RMSNorm MistralRMSNorm MixtralRMSNorm MllamaTextRMSNorm
    Molmo2RMSNorm MuseGlimmerAssistantRMSNorm NemotronHRMSNorm NemotronH_Omni_RMSNorm NeuCodecRMSNorm Olmo2RMSNorm
    Olmo3RMSNorm OlmoHybridRMSNorm OlmoeRMSNorm OpenAIPrivacyFilterRMSNorm Ovis2RMSNorm PaddleOCRRMSNorm
    PeAudioEncoderRMSNorm PeAudioVideoEncoderRMSNorm PeVideoEncoderRMSNorm Phi3RMSNorm Phi4MultimodalRMSNorm
    Pix2StructLayerNorm PixtralRMSNorm Pop2PianoLayerNorm QianfanOCRVisionRMSNorm Qwen2MoeRMSNorm Qwen2RMSNorm
    Qwen2VLRMSNorm Qwen2_5OmniRMSNorm Qwen2_5_VLRMSNorm Qwen3MoeRMSNorm Qwen3OmniMoeCode2WavRMSNorm
    Qwen3OmniMoeRMSNorm Qwen3OmniMoeTextRMSNorm Qwen3OmniMoeThinkerTextRMSNorm Qwen3RMSNorm Qwen3VLMoeTextRMSNorm
    Qwen3VLTextRMSNorm Sapiens2RMSNorm SeedOssRMSNorm SmolLM3RMSNorm SolarOpenRMSNorm SwitchTransformersLayerNorm
    T5LayerNorm TimesFm2_5RMSNorm TimesFmRMSNorm UMT5LayerNorm UdopLayerNorm UltraVBertRMSNorm UltrabertRMSNorm
    UnlimitedOcrTextRMSNorm VibeVoiceAcousticTokenizerRMSNorm VibeVoiceAsrRMSNorm VibeVoiceRMSNorm
    VoxtralRealtimeRMSNorm Xcodec2RMSNorm YoutuRMSNorm Zamba2RMSNorm ZambaRMSNorm ZayaRMSNorm
"""

_EPS = """
    DiffusionGemmaRMSNorm EmbeddingGemma2RMSNorm Gemma3nRMSNorm Gemma4RMSNorm Gemma4UnifiedRMSNorm
    KyutaiSpeechToTextRMSNorm Llama4TextRMSNorm MoshiRMSNorm MuseGlimmerRMSNorm MuseSparkRMSNorm NeoMMERMSNorm
"""

# Where a class of this name keeps its eps.
_EPS_NAMES = dict.fromkeys(_VARIANCE_EPSILON.split(), "variance_epsilon") | dict.fromkeys(_EPS.split(), "eps")


def eps_name(cls: type) -> str | None:
    """The attribute that holds eps, or None where the class is not in the table."""
    return _EPS_NAMES.get(cls.__name__) if cls.__module__.startswith("transformers.") else None


class LlamaStyle(torch.nn.Module):
    """forward, in front of a class of the table. The result has the dtype of the input, rounded once and not twice."""

    _eps_name: str

    def forward(self, hidden_states: Tensor) -> Any:
        weight = getattr(self, "weight", None)
        if weight is not None and weight.dtype is not hidden_states.dtype:
            return super().forward(hidden_states)  # the class's own rules decide on the dtype of the result
        y = rms_norm(hidden_states, hidden_states.shape[-1:], weight, getattr(self, self._eps_name))
        return y if y.dtype is hidden_states.dtype else y.to(hidden_states.dtype)  # autocast computes in float32
