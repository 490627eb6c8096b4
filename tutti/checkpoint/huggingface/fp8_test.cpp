// Weights in FP8 by blocks of 128: every code, odd sizes, whole imports, and damaged scales.
#include "tutti/checkpoint/huggingface/fp8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/testing/hf_fixture.h"

namespace tutti::checkpoint {
namespace {

// OFP8: 1-4-3 bits, bias 7, one NaN per sign.
double e4m3(unsigned code) {
  const int exponent = static_cast<int>(code >> 3 & 15);
  const int mantissa = static_cast<int>(code & 7);
  const double size =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 128) != 0 ? -size : size;
}

TEST(Fp8, HoldsEveryCodeTimesItsScale) {
  std::vector<uint8_t> codes(256);
  for (unsigned i = 0; i < 256; ++i) codes[i] = static_cast<uint8_t>(i);
  std::vector<float> out(256);
  decode_fp8(codes.data(), 0.375F, 256, out.data());
  for (unsigned i = 0; i < 256; ++i) {
    if ((i & 127) == 127) {
      EXPECT_TRUE(std::isnan(out[i]));
    } else {
      EXPECT_EQ(static_cast<double>(out[i]), 0.375 * e4m3(i)) << i;
      EXPECT_EQ(std::signbit(out[i]), i >= 128);
    }
  }
}

Json deepseek_json() {
  return {{"architectures", {"DeepseekV3ForCausalLM"}},
          {"model_type", "deepseek_v3"},
          {"vocab_size", 37},
          {"max_position_embeddings", 64},
          {"hidden_size", 150},  // a block and a part of one
          {"num_hidden_layers", 2},
          {"num_attention_heads", 3},
          {"num_key_value_heads", 3},
          {"intermediate_size", 140},
          {"first_k_dense_replace", 1},
          {"kv_lora_rank", 131},
          {"q_lora_rank", 20},
          {"qk_nope_head_dim", 40},
          {"qk_rope_head_dim", 6},
          {"v_head_dim", 11},
          {"n_routed_experts", 4},
          {"n_shared_experts", 1},
          {"num_experts_per_tok", 2},
          {"moe_intermediate_size", 7},
          {"n_group", 2},
          {"topk_group", 1},
          {"num_nextn_predict_layers", 1},
          {"quantization_config",
           {{"quant_method", "fp8"}, {"fmt", "e4m3"}, {"weight_block_size", {128, 128}}}}};
}

const std::vector<std::string> kFp8Weights = {"model.layers.0.mlp.gate_proj.weight",
                                              "model.layers.1.self_attn.q_b_proj.weight",
                                              "model.layers.1.self_attn.kv_a_proj_with_mqa.weight",
                                              "model.layers.1.mlp.experts.2.up_proj.weight"};

std::vector<int64_t> scale_shape(const std::vector<int64_t>& shape) {
  return {(shape[0] + 127) / 128, (shape[1] + 127) / 128};
}

// A model of which some matrices are in FP8, and the same in f32.
struct Fp8Models {
  FakeHfModel packed{deepseek_json()};
  FakeHfModel plain{deepseek_json()};
  Fp8Models() {
    for (const std::string& name : kFp8Weights) pack(name);
  }
  void pack(const std::string& name) {
    SafetensorsTensor& tensor = packed.tensor(name);
    const std::vector<int64_t> shape = tensor.shape;
    const std::vector<int64_t> blocks = scale_shape(shape);
    std::string codes(static_cast<size_t>(shape[0] * shape[1]), '\0');
    std::vector<float> scales(static_cast<size_t>(blocks[0] * blocks[1]));
    std::vector<float> values(codes.size());
    for (size_t i = 0; i < scales.size(); ++i) scales[i] = 0.01F * static_cast<float>(i + 1);
    for (int64_t r = 0; r < shape[0]; ++r) {
      for (int64_t c = 0; c < shape[1]; ++c) {
        const auto at = static_cast<size_t>(r * shape[1] + c);
        const auto code = static_cast<unsigned>(at * 7 % 126 + (at % 3 == 0 ? 128 : 0));
        codes[at] = static_cast<char>(code);
        values[at] = static_cast<float>(e4m3(code)) *
                     scales[static_cast<size_t>(r / 128 * blocks[1] + c / 128)];
      }
    }
    tensor.dtype = DType::u8;
    tensor.e4m3 = true;
    packed.bytes_of[name] = codes;
    packed.tensors.push_back({name + "_scale_inv", DType::f32, blocks, 0, 0});
    packed.bytes_of[name + "_scale_inv"].assign(reinterpret_cast<const char*>(scales.data()),
                                                scales.size() * sizeof(float));
    plain.bytes_of[name].assign(reinterpret_cast<const char*>(values.data()),
                                values.size() * sizeof(float));
  }
  void set_scale(const std::string& name, size_t at, float value) {
    std::memcpy(packed.bytes_of.at(name + "_scale_inv").data() + at * sizeof value, &value,
                sizeof value);
  }
};

struct Fp8Import {
  MemoryFileSystem files;
  std::optional<Reader> reader;
  HfImported imported;
  Fp8Import(const FakeHfModel& model, std::optional<DType> dtype) {
    model.write(files, "m");
    const HfFolder folder(files, "m");
    const HfModel hf = read_hf_config(folder.config(), folder.config_path());
    State state;
    state.model = {{"layers", hf.model.layers}};
    HfImportOptions options;
    options.dtype = dtype;
    imported = import_parameters(files, folder, hf, state, "run/checkpoints", options);
    reader.emplace(files, imported.written.path, serially);
  }
  std::vector<float> load(const std::string& name) {
    const TensorRecord& record = reader->tensor("param." + name);
    std::vector<float> values(static_cast<size_t>(checked_bytes(DType::u8, record.shape)));
    reader->load("param." + name, DType::f32, record.shape, values.data());
    return values;
  }
};

TEST(Fp8, ImportsAreThoseOfTheNumbers) {
  const Fp8Models models;
  Fp8Import packed(models.packed, DType::f32);
  Fp8Import plain(models.plain, DType::f32);
  for (const char* name :
       {"blocks.0.mlp.gate_up.weight", "blocks.1.attention.query_up.weight",
        "blocks.1.attention.kv_down.weight", "blocks.1.moe.experts.gate_up.weight",
        "blocks.0.attention.kv_up.weight"}) {
    EXPECT_EQ(packed.load(name), plain.load(name)) << name;
  }
  EXPECT_EQ(Fp8Import(models.packed, std::nullopt)
                .reader->tensor("param.blocks.1.attention.query_up.weight")
                .dtype,
            DType::bf16);
}

// Rows of a head in the order of Tutti: rotated ones first, pairs as halves.
TEST(Fp8, RotatedRowsComeFirst) {
  const Fp8Models models;
  Fp8Import plain(models.plain, DType::f32);
  const std::string name = "model.layers.1.self_attn.kv_a_proj_with_mqa.weight";
  std::vector<float> file(static_cast<size_t>(137 * 150));
  std::memcpy(file.data(), models.plain.bytes_of.at(name).data(), file.size() * sizeof(float));
  const std::vector<float> ours = plain.load("blocks.1.attention.kv_down.weight");
  const int64_t from[] = {131, 133, 135, 132, 134, 136, 0, 1, 2};
  for (size_t row = 0; row < std::size(from); ++row) {
    for (size_t c = 0; c < 150; ++c) {
      ASSERT_EQ(ours[row * 150 + c], file[static_cast<size_t>(from[row]) * 150 + c]) << row;
    }
  }
}

TEST(Fp8, DamagedScalesAreRefused) {
  const std::string& name = kFp8Weights[0];
  const auto refused = [&](const auto& damage, const std::string& said) {
    Fp8Models models;
    damage(models);
    try {
      const Fp8Import import(models.packed, std::nullopt);
      ADD_FAILURE() << "not refused: " << said;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(said), std::string::npos) << error.what();
    }
  };
  const auto scale = [&](float value) {
    return [&, value](Fp8Models& m) { m.set_scale(name, 3, value); };
  };
  refused(scale(0), "has the scale 0 at element 3");
  refused(scale(-1), "has the scale -1 at element 3");
  refused(scale(std::numeric_limits<float>::quiet_NaN()), name + "_scale_inv");
  refused(scale(std::numeric_limits<float>::infinity()), name + "_scale_inv");
  refused([&](Fp8Models& m) { m.packed.remove(name + "_scale_inv"); }, "is missing");
  refused(
      [&](Fp8Models& m) {
        m.packed.tensor(name + "_scale_inv").shape = {4, 1};
      },
      "_scale_inv' is f32 [4, 1]");
  refused([&](Fp8Models& m) { m.packed.tensor(name + "_scale_inv").dtype = DType::i32; },
          "_scale_inv' is i32");
  refused([&](Fp8Models& m) { m.packed.bytes_of.at(name)[5] = 127; }, name);  // NaN
  refused([&](Fp8Models& m) { m.packed.tensor(name).e4m3 = false; }, "is u8");
}

TEST(Fp8, OtherFamiliesAreRefused) {
  for (const Json& config : {llama_json(), gpt2_json()}) {
    FakeHfModel model(config);
    const std::string name = model.tensors.at(1).name;
    model.tensor(name).dtype = DType::u8;
    model.tensor(name).e4m3 = true;
    const auto elements = static_cast<size_t>(checked_bytes(DType::u8, model.tensor(name).shape));
    model.bytes_of[name] = std::string(elements, '\x38');
    EXPECT_TRUE(says(error_of([&] { const Fp8Import import(model, std::nullopt); }),
                     ErrorKind::unsupported, name));
  }
}

TEST(Fp8, PredictionLayersAreLeftOut) {
  FakeHfModel model(deepseek_json());
  model.add("model.layers.2.eh_proj.weight", DType::f32, {150, 300});
  EXPECT_NO_THROW(Fp8Import(model, std::nullopt));
  model.add("model.layers.3.eh_proj.weight", DType::f32, {150, 300});
  EXPECT_THROW(Fp8Import(model, std::nullopt), Error);  // no part of one
  FakeHfModel without(deepseek_json());
  without.config["num_nextn_predict_layers"] = 0;
  without.add("model.layers.2.eh_proj.weight", DType::f32, {150, 300});
  EXPECT_THROW(Fp8Import(without, std::nullopt), Error);
  FakeHfModel many(deepseek_json());  // no loop over what a file claims
  many.config["num_nextn_predict_layers"] = int64_t{1} << 39;
  many.add("model.layers.12345678901.eh_proj.weight", DType::f32, {1});
  EXPECT_NO_THROW(Fp8Import(many, std::nullopt));
  many.add("model.layers.x.eh_proj.weight", DType::f32, {1});
  EXPECT_THROW(Fp8Import(many, std::nullopt), Error);
}

}  // namespace
}  // namespace tutti::checkpoint
