#include "tutti/plan/mlperf_rows.h"

#include <gtest/gtest.h>

#include "tutti/base/testing/memory_file.h"
#include "tutti/plan/testing/rows.h"

namespace tutti::plan {
namespace {

const std::string kHeader =
    "round,benchmark,submitter,system,accelerator,num_accelerators,nodes,global_batch,micro_batch,"
    "tp,"
    "pp,cp,dp,precision,minutes,samples_to_target,source\n";

TEST(MlperfRows, RunIsStepsAndEvaluations) {
  const std::vector<PreparedRow> rows =
      rows_of(kHeader +
              "v4.0,gpt3,N,eos,H100-SXM5-80GB,512,64,2048,2,4,8,1,16,FP8,58,589824,"
              "training_results_v4.0:N/results ; RCP scaling 1.02 (raw 56.9 min)\n");
  ASSERT_EQ(rows.size(), 1U);
  const Measurement& row = rows.front().measurement();
  EXPECT_EQ(row.unpredictable, "");
  EXPECT_EQ(row.system, "dgx-h100");
  EXPECT_EQ(row.software, "mlperf-4.0");
  EXPECT_DOUBLE_EQ(row.value, 56.9);  // before scaling
  EXPECT_DOUBLE_EQ(row.run.steps, 288);
  EXPECT_DOUBLE_EQ(row.run.evaluations, 24);
  EXPECT_EQ(row.run.evaluation_samples, 5659);
  EXPECT_EQ(row.recipe.parallel.zero, 1);
  // Twice the steps and evaluations take twice as long.
  Measurement twice = row;
  twice.run.steps *= 2;
  twice.run.evaluations *= 2;
  const PreparedRow prepared(std::move(twice), shipped_catalog());
  Constants constants = assumed_constants();
  constants[Constant::run_start_seconds] = 0;
  EXPECT_NEAR(prepared.predict(constants), 2 * rows.front().predict(constants), 1e-9);
}

TEST(MlperfRows, LayoutComesFromASimilarRowOrIsSearched) {
  const std::string like =
      "v5.0,llama2_70b_lora,N,nyx,B200-SXM-180GB,8,1,8,1,1,1,1,8,FP8,11.3,3168,"
      "training_results_v5.0:N\n";
  const std::string open =
      "v5.0,llama2_70b_lora,M,other,B200-SXM-180GB,8,1,8,,,,,,,11.4,3168,"
      "training_results_v5.0:M\n";
  const std::vector<PreparedRow> known = rows_of(kHeader + like + open);
  EXPECT_TRUE(known[1].measurement().free.empty());
  EXPECT_EQ(known[0].layout(), known[1].layout());
  EXPECT_EQ(known[1].measurement().recipe.lora.rank, 16);
  const std::vector<PreparedRow> alone = rows_of(kHeader + open);
  EXPECT_EQ(alone[0].measurement().free, std::vector<std::string>{"layout"});
  EXPECT_GT(alone[0].predict(assumed_constants()), 0);
}

TEST(MlperfRows, UnpredictableRowsHaveAReason) {
  const std::vector<PreparedRow> rows = rows_of(
      kHeader +
      "v3.1,gpt3,G,c,TPU-v5e,4096,1024,2048,,,,,,,44.6,589824,training_results_v3.1:G\n"
      "v3.1,bert,N,c,H100-SXM5-80GB,8,1,8,1,1,1,1,8,FP8,1,100,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,8,FP8,1,100,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,16,FP8,1,,training_results_v3.1:N\n"
      "v3.1,gpt3,N,c,H100-SXM5-80GB,512,64,2048,1,4,8,1,16,FP8,,100,training_results_v3.1:N\n");
  for (const PreparedRow& row : rows) EXPECT_FALSE(row.predictable());
  EXPECT_NE(rows[0].measurement().unpredictable.find("no chip of the catalog is known as TPU-v5e"),
            std::string::npos);
  EXPECT_NE(rows[1].measurement().unpredictable.find("bert"), std::string::npos);
  EXPECT_NE(rows[2].measurement().unpredictable.find("512 accelerators"), std::string::npos);
  EXPECT_NE(rows[3].measurement().unpredictable.find("samples to the target"), std::string::npos);
  EXPECT_NE(rows[4].measurement().unpredictable.find("value is missing"), std::string::npos);
}

// Rows of an unknown source, chips under their marketing names, 4-bit formats and every benchmark
// are all used.
TEST(MlperfRows, EveryKnownChipModelAndPrecisionIsUsed) {
  const std::vector<PreparedRow> rows = rows_of(
      kHeader +
      "v5.1,llama31_8b,M,c,Blackwell Ultra GPU (B300-SXM-270GB),8,1,16,2,1,1,1,8,NVFP4,75,175104,"
      "training_results_v5.1:M\n"
      "v5.1,llama2_70b_lora,M,c,Blackwell GPU (GB200),72,18,9,1,1,1,8,9,FP8,1.4,3338,"
      "training_results_v5.1:M\n"
      "v7.0,llama2_70b_lora,me,mine,b200,8,1,8,1,1,1,1,8,FP8,11,3168,my own runs\n"
      "v7.0,llama2_70b_lora,me,mine,AMD Instinct MI355X,8,1,8,1,1,1,1,8,FP8,10,3168,my own runs\n"
      "v7.0,llama2_70b_lora,me,mine,b200,8,1,8,1,1,1,1,8,FP8,eleven,3168,my own runs\n");
  ASSERT_EQ(rows.size(), 5U);
  const std::vector<std::pair<const char*, spec::Precision>> expected = {
      {"dgx-b300", spec::Precision::fp4},
      {"azure-nd-gb200-v6", spec::Precision::fp8},
      {"dgx-b200", spec::Precision::fp8},
      {"mi355x-8", spec::Precision::fp8}};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(rows[i].measurement().unpredictable, "");
    EXPECT_EQ(rows[i].measurement().system, expected[i].first);
    EXPECT_EQ(rows[i].measurement().recipe.precision, expected[i].second);
    EXPECT_GT(rows[i].predict(assumed_constants()), 0);
  }
  EXPECT_EQ(rows[1].measurement().profile.name, "nemo-lora");
  EXPECT_EQ(rows[2].measurement().profile.name, "nemo-lora");
  EXPECT_NE(rows[4].measurement().unpredictable.find("'eleven' is not a number"),
            std::string::npos);
  const Validation validation = validate_rows(rows, {}, std::vector<bool>(rows.size(), false));
  EXPECT_NE(format_validation(validation, false).find("5 rows: 4 predicted, 1 not\n"),
            std::string::npos)
      << format_validation(validation, false);
}

TEST(MlperfRows, LoggedMinutesCanHaveAColumn) {
  std::string header = kHeader;
  header.replace(header.find("minutes,"), 8, "minutes,raw_minutes,");
  const std::vector<PreparedRow> rows =
      rows_of("# a comment\n" + header +
              "v5.1,llama2_70b_lora,M,c,B200-SXM-180GB,8,1,8,1,1,1,1,8,FP8,9.9,9.5,3168,"
              "training_results_v5.1:M\n");
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows[0].measurement().line, 3);
  EXPECT_DOUBLE_EQ(rows[0].measurement().value, 9.5);
}

// What a claim knows as a chip, a prediction knows too: the record's row names NVIDIA before it.
TEST(MlperfRows, NamesOfChipsAreThoseOfClaims) {
  const std::vector<PreparedRow> rows = rows_of(
      kHeader +
      "v6.0,llama31_405b,Azure,2048xAzure_GB200,NVIDIA Blackwell GPU (GB200),8192,2048,1024,1,4,8,"
      "2,128,NVFP4,7.069,331776,training_results_v6.0:Azure\n");
  ASSERT_EQ(rows.size(), 1U);
  const Measurement& record = rows[0].measurement();
  EXPECT_EQ(record.unpredictable, "");
  EXPECT_EQ(record.system, "azure-nd-gb200-v6");
  EXPECT_EQ(record.software, "mlperf-6.0");
  EXPECT_EQ(record.recipe.precision, spec::Precision::fp4);
  // Without a source, under any published name.
  const catalog::Catalog& catalog = shipped_catalog();
  for (const char* name : {"NVIDIA Blackwell GPU (GB200)", "blackwell gpu (gb200)", "GB200"}) {
    EXPECT_EQ(catalog.system(system_of(nullptr, name, catalog)).chip.name, "GB200") << name;
  }
  EXPECT_THROW(system_of(nullptr, "H200-NVL-141GB", catalog), Error);
}

// An entry for some GPU types comes before one for all.
TEST(MlperfRows, SourceCanApplyToSomeGpus) {
  const std::vector<MeasurementSource> sources =
      load_sources(posix_file_system(), {catalog_folder()});
  const auto host = [&](const char* gpu) {
    const MeasurementSource* found = source_of(sources, "training_results_v5.1:X", {}, gpu);
    return found->stated.count(Constant::host_microseconds);
  };
  EXPECT_EQ(host("Blackwell GPU (GB200)"), 1U);
  EXPECT_EQ(host("H200-SXM5-141GB"), 0U);
  const auto attention = [&](const char* note, const char* gpu) {
    return source_of(sources, "MosaicML llm-foundry (x)", note, gpu)
        ->stated.at(Constant::attention_ratio);
  };
  EXPECT_EQ(attention("FSDP", "A100-SXM-80GB"), 0.52);
  EXPECT_EQ(attention("FSDP", "h100-sxm-80gb"), 0.24);
  EXPECT_EQ(attention("attn_impl flash; FSDP", "H100-SXM-80GB"), 0.34);
}

// A user's entry of the same name replaces ours; one with the same prefix comes before it.
TEST(MlperfRows, OwnSourcesWin) {
  const auto entry = [](const char* name, const char* software) {
    return std::string("kind: source\nname: ") + name +
           "\nsource: {text: me, date: 2026-01-01}\ntexts:\n  prefix: training_results_v5.1\n"
           "  software: " +
           software + "\n  profile: tutti\n  systems: \"B200-SXM-180GB=superpod-b200\"\n";
  };
  for (const char* name : {"mlperf-5.1", "mine"}) {
    SCOPED_TRACE(name);
    MemoryFileSystem files;
    files.create_directories("/shipped/sources");
    files.create_directories("/own/sources");
    write_file_atomic(
        files, "/shipped/sources/mlperf-5.1.yaml",
        read_file(posix_file_system(), catalog_folder() + "/sources/mlperf-5.1.yaml"));
    write_file_atomic(files, "/own/sources/own.yaml", entry(name, "ours"));
    const std::vector<MeasurementSource> sources = load_sources(files, {"/shipped", "/own"});
    const MeasurementSource* found = source_of(sources, "training_results_v5.1:X");
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->software, "ours");
    EXPECT_EQ(system_of(found, "B200-SXM-180GB", shipped_catalog()), "superpod-b200");
  }
}

// Also before ours for a single GPU type or with a longer prefix; unknown texts of an entry are
// reported.
TEST(MlperfRows, OwnGeneralSourceWinsAndUnknownTextsAreReported) {
  const auto own = [](const char* more) {
    MemoryFileSystem files;
    files.create_directories("/shipped/sources");
    files.create_directories("/own/sources");
    for (const char* name : {"mlperf-5.1", "mlperf-5.1-graphs"}) {
      const std::string file = std::string("/sources/") + name + ".yaml";
      write_file_atomic(files, "/shipped" + file,
                        read_file(posix_file_system(), catalog_folder() + file));
    }
    write_file_atomic(files, "/own/sources/own.yaml",
                      std::string("kind: source\nname: mine\nsource: {text: me, date: 2026-01-01}\n"
                                  "texts:\n  prefix: training_results\n  software: ours\n"
                                  "  profile: tutti\n") +
                          more);
    return load_sources(files, {"/shipped", "/own"});
  };
  const std::vector<MeasurementSource> sources = own("");
  EXPECT_EQ(source_of(sources, "training_results_v5.1:X", {}, "Blackwell GPU (GB200)")->software,
            "ours");
  try {
    own("  recomputte: full\n");
    FAIL() << "an unknown text was taken";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("/own/sources/own.yaml: texts.recomputte"), std::string::npos) << text;
    EXPECT_NE(text.find("did you mean 'recompute'?"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace tutti::plan
