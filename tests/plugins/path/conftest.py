"""A tiny model with random weights, as a Hugging Face folder and as a GGUF file."""

import numpy as np
import pytest

WORDS = {"embed_tokens": "token_embd", "norm": "output_norm"}
LAYER = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
SIZES = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A Llama whose tokenizer knows bytes only; embedding and head are not tied."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    parts = pytest.importorskip("tokenizers")

    where = tmp_path_factory.mktemp("model")
    begin, stop = "<s>", "</s>"
    letters = [*sorted(parts.pre_tokenizers.ByteLevel.alphabet()), begin, stop]
    own = parts.Tokenizer(parts.models.BPE(vocab={t: n for n, t in enumerate(letters)}, merges=[]))
    own.pre_tokenizer = parts.pre_tokenizers.ByteLevel(add_prefix_space=False)
    own.decoder = parts.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=own, bos_token=begin, eos_token=stop
    ).save_pretrained(where)
    config = transformers.LlamaConfig(
        vocab_size=len(letters),
        num_attention_heads=2,
        num_key_value_heads=1,
        tie_word_embeddings=False,
        bos_token_id=256,
        eos_token_id=257,
        **SIZES,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        transformers.LlamaForCausalLM(config).save_pretrained(where)
    return where


@pytest.fixture(scope="session")
def gguf_file(folder, tmp_path_factory):
    """The same model and tokenizer in one GGUF file."""
    gguf = pytest.importorskip("gguf")
    pytest.importorskip("accelerate")
    transformers = pytest.importorskip("transformers")

    weights = transformers.AutoModelForCausalLM.from_pretrained(folder).state_dict()
    letters = transformers.AutoTokenizer.from_pretrained(folder).get_vocab()
    file = tmp_path_factory.mktemp("gguf") / "model.gguf"
    writer = gguf.GGUFWriter(str(file), "llama")
    writer.add_context_length(512)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_feed_forward_length(64)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10_000.0)
    writer.add_rope_dimension_count(16)
    writer.add_vocab_size(len(letters))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(sorted(letters, key=letters.get))
    writer.add_token_types([1] * 256 + [3, 3])
    writer.add_token_scores([0.0] * len(letters))
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(257)
    names = {f"model.{ours}.weight": f"{theirs}.weight" for ours, theirs in WORDS.items()}
    names["lm_head.weight"] = "output.weight"
    for layer in range(SIZES["num_hidden_layers"]):
        for ours, theirs in LAYER.items():
            names[f"model.layers.{layer}.{ours}.weight"] = f"blk.{layer}.{theirs}.weight"
    for ours, theirs in names.items():
        weight = weights[ours].numpy().astype(np.float32)
        for name, heads in (("attn_q", 2), ("attn_k", 1)):
            if name in theirs:  # this format keeps the rotated halves interleaved
                halves = weight.reshape(heads, 2, -1, weight.shape[1])
                weight = halves.swapaxes(1, 2).reshape(weight.shape)
        writer.add_tensor(theirs, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file
