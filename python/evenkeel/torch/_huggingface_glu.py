"""Hugging Face's gated feed-forward layers: which classes they are, and how each computes.

A name of the table stands for one formula in every version of transformers that has it; replace compares the two before
it relies on that. _register.py reads the table. SPDX-License-Identifier: MIT
"""

from evenkeel.torch._glu_spec import GluSpec

# down_proj(act_fn(gate_proj(x)) * up_proj(x))
_SEPARATE = """
    AXK1MLP AXK2MLP AfmoeMLP Aimv2MLP AriaSharedExpertsMLP BailingHybridMLP BambaMLP BltMLP ChameleonMLP Cohere2MLP
    Cohere2MoeMLP CohereCompassMLP CohereMLP CsmMLP CwmMLP DINOv3ViTGatedMLP DeepseekOcr2TextMLP
    DeepseekOcr2VisionMLP DeepseekV2MLP DeepseekV32MLP DeepseekV3MLP Deimv2SwiGLUFFN DiffLlamaMLP
    DiffusionGemmaText4MLP Dinov2SwiGLUFFN Dinov2WithRegistersSwiGLUFFN DogeMLP Dots1MLP EmbeddingGemma2MLP Emu3MLP
    EomtDinov3GatedMLP EomtSwiGLUFFN Ernie4_5MLP Ernie4_5_MoeMLP Ernie4_5_VLMoeMLP EsmcMLP EuroBertMLP EvollaMLP
    Exaone4MLP Exaone4_5_MLP ExaoneMoeMLP FlexOlmoMLP FlintMLP Gemma2MLP Gemma3MLP Gemma4TextMLP
    Gemma4UnifiedTextMLP Gemma4VisionMLP GemmaMLP Glm4MoeLiteMLP Glm4MoeMLP Glm4VisionMlp Glm4vMoeTextMLP
    Glm4vMoeisionMlp GlmMoeDsaMLP GlmOcrVisionMlp Granite4VisionTextMLP GraniteMLP GraniteSWAMLP HYV3MLP HYV4MLP
    HeliumMLP HiggsAudioV2MLP HrmTextMLP HunYuanDenseV1MLP HunYuanMoEV1MLP HunYuanVLMLP HyperCLOVAXMLP Idefics2MLP
    IdeficsMLP JambaMLP KimiLinearMLP Kolibri1MLP LagunaMLP LlamaMLP LongcatFlashMLP MellumMLP MiMoV2FlashMLP
    MiniCPM3MLP Ministral3MLP MinistralMLP Mistral4MLP MistralLarge4TextMLP MistralMLP MllamaTextMLP
    Molmo2ImageProjectorMLP Molmo2MLP MoonshinMoonshineStreamingDecoderMLP MuseGlimmerAssistantMLP
    MuseGlimmerTextMLP MuseSparkTextMLP NomicBertMLP Olmo2MLP Olmo3MLP OlmoHybridMLP OlmoMLP OlmoeMLP Ovis2MLP
    Ovis2VisionMLP PaddleOCRMLP PeAudioEncoderMLP PeAudioVideoEncoderMLP PeVideoEncoderMLP PixtralMLP Qwen2MLP
    Qwen2MoeMLP Qwen2_5OmniMLP Qwen2_5_VLMLP Qwen3MLP Qwen3MoeMLP Qwen3NextMLP Qwen3OmniMoeCode2WavMlp
    Qwen3OmniMoeMLP Qwen3OmniMoeTalkerTextMLP Qwen3OmniMoeThinkerTextMLP Qwen3VLMoeTextMLP Qwen3VLTextMLP Qwen3_5MLP
    Qwen3_5MoeMLP Qwen4ExpTextMLP RadioSwiGLUFFN RecurrentGemmaMlp RfDetrDinov2SwiGLUFFN Sapiens2GatedMLP SmolLM3MLP
    SolarOpenMLP StableLmMLP Tipsv2VisionSwiGLUFFN UltrabertMLP UnlimitedOcrTextMLP VaultGemmaMLP VibeVoiceMLP
    VideomtGatedMLP VideomtSwiGLUFFN VoxtralRealtimeMLP VoxtralRealtimeTextMLP YoutuMLP ZambaMLP
"""

# The same of one product, whose first half is the gate.
_PACKED = """
    DiaMLP EsmFold2SwiGLU Glm4MLP Glm4vTextMLP GlmImageTextMLP GlmMLP GlmOcrTextMLP Phi3MLP Phi4MultimodalMLP
"""

_GPT_OSS = GluSpec(activation="silu", limit="limit", alpha="alpha", value_offset=1.0, method="_apply_gate")
_SPECS = (
    (_SEPARATE, GluSpec(gate="gate_proj", value="up_proj")),
    ("Llama4TextMLP", GluSpec(gate="gate_proj", value="up_proj", activation="activation_fn")),
    ("DeepseekV4MLP", GluSpec(gate="gate_proj", value="up_proj", limit="limit")),
    (_PACKED, GluSpec(gate="gate_up_proj", activation="activation_fn")),
    (
        "MiniMaxM3VLDenseMLP",
        GluSpec(gate="gate_up_proj", activation="silu", limit="swiglu_limit", alpha="swiglu_alpha", value_offset=1.0),
    ),
    ("GptOssExperts", _GPT_OSS._replace(interleaved=True)),
    ("OpenAIPrivacyFilterExperts", _GPT_OSS),
    ("MiniMaxM3VLExperts", _GPT_OSS._replace(limit="swiglu_limit", alpha="swiglu_alpha")),
    ("DeepseekV4Experts", GluSpec(limit="limit", method="_apply_gate")),
)
TABLE = {name: spec for names, spec in _SPECS for name in names.split()}


def spec_of(cls: type) -> GluSpec | None:
    """None where the class is not in the table."""
    return TABLE.get(cls.__name__) if cls.__module__.startswith("transformers.") else None
