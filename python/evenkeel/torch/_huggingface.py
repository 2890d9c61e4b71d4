"""Hugging Face's norms: which classes they are, and how each computes.

A name of the table stands for one formula in every version of transformers that has it; replace compares the two before
it relies on that. _replace.py reads the table. SPDX-License-Identifier: MIT
"""

from evenkeel.torch._norm_spec import NormSpec

# weight * xhat.to(x.dtype): with a float32 weight the result is float32.
_LLAMA = """
    AXK1RMSNorm AXK2RMSNorm Aimv2RMSNorm ApertusRMSNorm ArceeRMSNorm AriaTextRMSNorm BailingHybridRMSNorm BambaRMSNorm
    BitNetRMSNorm BltRMSNorm ChameleonRMSNorm ClvpRMSNorm Cohere2MoeRMSNorm Cosmos3EdgeTextRMSNorm CsmRMSNorm CwmRMSNorm
    DeepseekOcr2TextRMSNorm DeepseekOcr2VisionRMSNorm DeepseekV2RMSNorm DeepseekV32RMSNorm DeepseekV3RMSNorm
    Deimv2RMSNorm DiaRMSNorm DiffLlamaRMSNorm DogeRMSNorm Dots1RMSNorm Emu3RMSNorm Ernie4_5RMSNorm Ernie4_5_MoeRMSNorm
    Ernie4_5_VLMoeRMSNorm EuroBertRMSNorm EvollaRMSNorm Exaone4RMSNorm Exaone4_5_RMSNorm ExaoneMoeRMSNorm
    FalconH1RMSNorm FalconMambaRMSNorm Glm4MoeLiteRMSNorm Glm4MoeRMSNorm Glm4RMSNorm Glm4vMoeRMSNorm Glm4vMoeTextRMSNorm
    Glm4vRMSNorm Glm5NextRMSNorm Glm5NextTextRMSNorm GlmImageRMSNorm GlmMoeDsaRMSNorm GlmOcrRMSNorm GlmRMSNorm
    Granite4VisionTextRMSNorm GraniteMoeHybridRMSNorm GraniteMoeRMSNorm GraniteMoeSWARMSNorm GraniteMoeSharedRMSNorm
    GraniteRMSNorm GraniteSWARMSNorm HYV3RMSNorm HYV4RMSNorm HiggsAudioV2RMSNorm HunYuanDenseV1RMSNorm
    HunYuanMoEV1RMSNorm HunYuanVLRMSNorm HyperCLOVAXRMSNorm Idefics2RMSNorm Idefics3RMSNorm InklingRMSNorm
    InternVLVisionRMSNorm JambaRMSNorm JetMoeRMSNorm KimiLinearRMSNorm Kolibri1RMSNorm LagunaRMSNorm Lfm2MoeRMSNorm
    Lfm2RMSNorm LightOnOcrRMSNorm LlamaRMSNorm LongcatFlashRMSNorm Mamba2RMSNorm MambaRMSNorm MellumRMSNorm
    MiMoV2FlashRMSNorm MiniCPM3RMSNorm MiniMaxM2RMSNorm MiniMaxRMSNorm Ministral3RMSNorm MinistralRMSNorm
    Mistral3RMSNorm Mistral4RMSNorm MistralLarge4RMSNorm MistralRMSNorm MixtralRMSNorm MllamaTextRMSNorm Molmo2RMSNorm
    MuseGlimmerAssistantRMSNorm NeuCodecRMSNorm OlmoeRMSNorm Ovis2RMSNorm PaddleOCRRMSNorm PeAudioEncoderRMSNorm
    PeAudioVideoEncoderRMSNorm PeVideoEncoderRMSNorm Phi3RMSNorm Phi4MultimodalRMSNorm PixtralRMSNorm
    QianfanOCRVisionRMSNorm Qwen2MoeRMSNorm Qwen2RMSNorm Qwen2VLRMSNorm Qwen2_5OmniRMSNorm Qwen2_5_VLRMSNorm
    Qwen3MoeRMSNorm Qwen3OmniMoeCode2WavRMSNorm Qwen3OmniMoeRMSNorm Qwen3OmniMoeTextRMSNorm
    Qwen3OmniMoeThinkerTextRMSNorm Qwen3RMSNorm Qwen3VLMoeTextRMSNorm Qwen3VLTextRMSNorm Sapiens2RMSNorm SeedOssRMSNorm
    SmolLM3RMSNorm SolarOpenRMSNorm TimesFm2_5RMSNorm TimesFmRMSNorm UltraVBertRMSNorm UltrabertRMSNorm
    UnlimitedOcrTextRMSNorm VibeVoiceAcousticTokenizerRMSNorm VibeVoiceAsrRMSNorm VibeVoiceRMSNorm
    VoxtralRealtimeRMSNorm Xcodec2RMSNorm YoutuRMSNorm Zamba2RMSNorm ZambaRMSNorm ZayaRMSNorm
"""

# The same, with eps in another attribute.
_LLAMA_EPS = """
    Llama4TextRMSNorm
"""

# The same where x and weight have one dtype. Else it depends on the weight's whether xhat rounds.
_T5 = """
    IdeficsRMSNorm Kosmos2_5LayerNorm LongT5LayerNorm MT5LayerNorm Pix2StructLayerNorm Pop2PianoLayerNorm
    SwitchTransformersLayerNorm T5LayerNorm UMT5LayerNorm UdopLayerNorm
"""

# (weight * xhat).to(x.dtype).
_OLMO2 = """
    AfmoeRMSNorm BeamRMSNorm DeepseekV4RMSNorm FlexOlmoRMSNorm FlintRMSNorm GptOssRMSNorm HeliumRMSNorm NemotronHRMSNorm
    NemotronH_Omni_RMSNorm Olmo2RMSNorm Olmo3RMSNorm OlmoHybridRMSNorm OpenAIPrivacyFilterRMSNorm
"""

# The same, with eps in another attribute; some have no weight.
_GEMMA4 = """
    DiffusionGemmaRMSNorm EmbeddingGemma2RMSNorm Gemma3nRMSNorm Gemma4RMSNorm Gemma4UnifiedRMSNorm
    KyutaiSpeechToTextRMSNorm MoshiRMSNorm MuseGlimmerRMSNorm MuseSparkRMSNorm NeoMMERMSNorm
"""

# ((1 + weight) * xhat).to(x.dtype).
_GEMMA = """
    Gemma2RMSNorm Gemma3RMSNorm GemmaRMSNorm MiniMaxM3VLRMSNorm MuseGlimmerTextCenteredRMSNorm Qwen3NextRMSNorm
    Qwen3_5MoeRMSNorm Qwen3_5RMSNorm RecurrentGemmaRMSNorm Step3p7RMSNorm T5Gemma2RMSNorm T5GemmaRMSNorm
    VaultGemmaRMSNorm
"""

# LayerNorm without a bias: (weight * xhat).to(x.dtype). Weights per head have two dimensions.
_COHERE = """
    Cohere2LayerNorm Cohere2MoeLayerNorm CohereCompassLayerNorm CohereLayerNorm
"""

# weight * xhat.to(x.dtype), times activation(gate) before it rounds to x.dtype.
_QWEN_GATED = """
    OlmoHybridRMSNormGated Qwen3NextRMSNormGated Qwen3_5MoeRMSNormGated Qwen3_5RMSNormGated Qwen4ExpTextRMSNormGated
"""

# (weight * xhat * activation(gate)).to(x.dtype).
_KIMI_GATED = """
    BailingHybridRMSNormGated Glm5NextTextRMSNormGated KimiLinearRMSNormGated
"""

# The formula of Llama, of x * silu(gate).
_MAMBA_GATED = """
    BambaRMSNormGated GraniteMoeHybridRMSNormGated MambaRMSNormGated
"""

# The same, of groups.
_ZAMBA_GATED = """
    NemotronHRMSNormGated Zamba2RMSNormGated
"""

_GATED = NormSpec("rms_norm", eps="variance_epsilon", gate="gate", activation="activation")
_MAMBA = _GATED._replace(rounding="each", result_dtype="promoted", activation="silu", gate_first=True)
_SPECS = (
    (_QWEN_GATED, _GATED._replace(rounding="each")),
    (_KIMI_GATED, _GATED._replace(result_dtype="x")),
    (_MAMBA_GATED, _MAMBA),
    (_ZAMBA_GATED, _MAMBA._replace(group_cols="group_size")),
    (_LLAMA, NormSpec("rms_norm", eps="variance_epsilon", rounding="each", result_dtype="promoted")),
    (_LLAMA_EPS, NormSpec("rms_norm", rounding="each", result_dtype="promoted")),
    (_T5, NormSpec("rms_norm", eps="variance_epsilon", rounding="each")),
    (_OLMO2, NormSpec("rms_norm", eps="variance_epsilon", result_dtype="x")),
    (_GEMMA4, NormSpec("rms_norm", result_dtype="x")),
    (_GEMMA, NormSpec("rms_norm", weight_offset=1.0, result_dtype="x")),
    (_COHERE, NormSpec("layer_norm", eps="variance_epsilon", result_dtype="x")),
    ("OlmoLayerNorm", NormSpec("layer_norm", weight=None, eps=1e-5, normalized_shape="normalized_shape")),
)
TABLE = {name: spec for names, spec in _SPECS for name in names.split()}


def spec_of(cls: type) -> NormSpec | None:
    """None where the class is not in the table."""
    return TABLE.get(cls.__name__) if cls.__module__.startswith("transformers.") else None
