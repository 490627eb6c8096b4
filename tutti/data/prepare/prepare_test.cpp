#include "tutti/data/prepare/prepare.h"

#include <cstdio>
#include <cstdlib>

#include "tutti/base/hash.h"
#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/meta.h"
#include "tutti/data/prepare/document_reader.h"
#include "tutti/data/testing/prepare_support.h"
#include "tutti/data/tokenizers/byte_tokenizer.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {
namespace {

TEST(Prepare, ATextFileIsADocument) {
  MemoryFileSystem files;
  write_text(files, "in/b", "second\xff");
  write_text(files, "in/a.txt", "first");
  const PrepareResult result = prepare(files, options_for({"in"}));
  EXPECT_EQ(all_documents(files, "out/c"), (std::vector<std::string>{"first", "second\xff"}));
  EXPECT_EQ(result.training.corpus.tokens, 5 + 1 + 7 + 1);
  EXPECT_EQ(result.training.text_bytes, 12);
  EXPECT_EQ(result.files, 2);
  EXPECT_EQ(result.source_bytes, 12);
  EXPECT_EQ(result.split, "none");
  EXPECT_FALSE(result.validation);
  int32_t end = 0;
  Corpus(files, "out/c").read(5, 1, &end);
  EXPECT_EQ(end, 256);
  for (const DirectoryEntry& entry : files.list("out")) {
    EXPECT_FALSE(contains(entry.name, ".tmp")) << entry.name;
  }
}

TEST(Prepare, MetaDescribesTheCorpus) {
  MemoryFileSystem files;
  write_text(files, "in/a", "text");
  write_text(files, "in/b", std::string("\0binary", 7));
  PrepareOptions options = options_for({"in"});
  options.licence = "CC0";
  options.data_class = "public";
  const PrepareResult result = prepare(files, options);
  const CorpusMeta meta = load_corpus_meta(files, "out/c");
  EXPECT_EQ(meta.tokenizer, "byte");
  EXPECT_EQ(meta.vocabulary_size, 257);
  EXPECT_EQ(meta.dtype, "u16");
  EXPECT_EQ(meta.documents, 1);
  EXPECT_EQ(meta.tokens, 5);
  EXPECT_EQ(meta.text_bytes, 4);
  EXPECT_EQ(meta.files, 1);
  ASSERT_EQ(meta.sources.size(), 1U);
  EXPECT_EQ(meta.sources[0].path, "in");
  EXPECT_EQ(meta.part, "all");
  EXPECT_EQ(meta.licence, "CC0");
  EXPECT_EQ(meta.data_class, "public");
  EXPECT_EQ(meta.skipped, (std::vector<std::pair<std::string, int64_t>>{{"binary", 1}}));
  const std::string bin = read_file(files, "out/c.bin");
  EXPECT_EQ(meta.bin_xxh3, hash_hex(hash_bytes(bin.data(), bin.size())));
  EXPECT_EQ(meta.bin_xxh3, result.training.corpus.content_hash);
}

TEST(Prepare, RecordsWhatEachSourceGave) {
  MemoryFileSystem files;
  write_text(files, "a.txt", "first");
  write_text(files, "in/1", "second");
  write_text(files, "in/2", std::string("\0binary", 7));
  write_text(files, "in/3", "third");
  write_text(files, "lists/b.jsonl", "{\"body\": \"x\"}\n{\"body\": \"yz\"}\n");
  write_text(files, "lists/sources.yaml",
             "- {path: b.jsonl, key: body, licence: CC0, data_class: public, weight: 3}\n- /in\n");
  const SourceList list = load_source_list(files, "lists/sources.yaml");
  EXPECT_EQ(list.paths, (std::vector<std::string>{"lists/b.jsonl", "/in"}));
  PrepareOptions options = options_for({"a.txt", "in", "lists/b.jsonl"});
  options.notes = {{}, {"MIT", "", ""}, list.notes[0]};
  options.licence = "unknown";
  const auto hash = [](const std::string& text) { return hash_hex(hash_text(text)); };
  const auto facts = [&](const std::string& prefix) {
    std::vector<std::string> lines;
    for (const SourceMeta& s : load_corpus_meta(files, prefix).sources) {
      lines.push_back(fmt::format("{} {} {} {} {} {} {}/{}", s.path, s.files, s.bytes, s.documents,
                                  s.tokens, s.hash, s.licence, s.data_class));
    }
    return lines;
  };
  const std::vector<std::string> hashes = {hash("first"),
                                           hash(hash("second") + " 1\n" + hash("third") + " 3\n"),
                                           hash(read_file(files, "lists/b.jsonl"))};
  prepare(files, options);
  EXPECT_EQ(facts("out/c"),
            (std::vector<std::string>{"a.txt 1 5 1 6 " + hashes[0] + " unknown/",
                                      "in 2 11 2 13 " + hashes[1] + " MIT/",
                                      "lists/b.jsonl 1 29 2 5 " + hashes[2] + " CC0/public"}));
  EXPECT_EQ(load_corpus_meta(files, "out/c").tokenizer_hash, tokenizer_hash(ByteTokenizer()));

  options.holdout_share = 0.5;  // of 24 tokens, "first." and "second" come before the cut
  options.split = SplitMethod::tail;
  options.overwrite = true;
  const PrepareResult result = prepare(files, options);
  EXPECT_TRUE(contains(facts("out/c")[0], "a.txt 1 5 1 6 "));
  EXPECT_TRUE(contains(facts("out/c")[1], "in 2 11 1 6 ")) << facts("out/c")[1];
  EXPECT_TRUE(contains(facts("out/c")[2], "b.jsonl 1 29 0 0 "));
  EXPECT_TRUE(contains(facts("out/c-validation")[1], "in 2 11 2 7 "));
  EXPECT_TRUE(contains(facts("out/c-validation")[2], "b.jsonl 1 29 2 5 "));
  EXPECT_EQ(result.sources[1].tokens, 13);
}

TEST(Prepare, SkippedCompressedFilesAreNotCounted) {
  MemoryFileSystem files;
  write_text(files, "in/a", "text");
  write_text(files, "in/b.gz", gzip(std::string("\0binary", 7)));
  write_text(files, "in/c.gz", gzip(""));
  prepare(files, options_for({"in"}));
  const CorpusMeta meta = load_corpus_meta(files, "out/c");
  EXPECT_EQ(meta.files, 1);
  EXPECT_EQ(meta.sources[0].files, 1);
  EXPECT_EQ(meta.sources[0].bytes, 4);
  EXPECT_EQ(meta.sources[0].hash, hash_hex(hash_text(hash_hex(hash_text("text")) + " a\n")));
}

TEST(Prepare, BadSourceListsNameTheLine) {
  MemoryFileSystem files;
  const auto loading = [&](const char* text) {
    write_text(files, "s.yaml", text);
    return error_of(ErrorKind::usage, [&] { load_source_list(files, "s.yaml"); });
  };
  EXPECT_TRUE(contains(loading("path: a"), "a list of sources"));
  EXPECT_TRUE(contains(loading("- a\n- {licence: x}"), "s.yaml:2: a source lacks its path"));
  EXPECT_TRUE(contains(loading("- {path: a, licens: x}"), "did you mean 'licens"));
  EXPECT_TRUE(contains(loading("- [a]"), "s.yaml:1"));
  EXPECT_TRUE(
      contains(loading("- a\n- s3://lab/b"), "s.yaml:2: 's3://lab/b' is in an object store"));
  EXPECT_TRUE(contains(loading("- a\n- \"\""), "s.yaml:2: a source lacks its path"));
}

TEST(Prepare, EveryFormatGivesTheSameDocuments) {
  MemoryFileSystem files;
  const std::vector<std::string> texts = {"one", "two\nlines", "caf\xc3\xa9", random_text(3000, 1)};
  std::string lines;
  for (const std::string& text : texts) {
    Json line;
    line["id"] = 7;
    line["text"] = text;
    lines += line.dump() + (text == "one" ? "\r\n\n" : "\n");
  }
  lines.pop_back();  // the last line need not end
  write_text(files, "a.jsonl", lines);
  write_text(files, "a.json.gz", gzip(lines));
  write_text(files, "a.ndjson.zst", zstd(lines));
  write_text(files, "two.jsonl.gz", gzip(lines.substr(0, 100)) + gzip(lines.substr(100)));
  write_text(files, "two.jsonl.zst", zstd(lines.substr(0, 100)) + zstd(lines.substr(100)));
  for (const char* name :
       {"a.jsonl", "a.json.gz", "a.ndjson.zst", "two.jsonl.gz", "two.jsonl.zst"}) {
    PrepareOptions options = options_for({name});
    options.overwrite = true;
    prepare(files, options);
    EXPECT_EQ(all_documents(files, "out/c"), texts) << name;
  }
  const std::string big = random_text(3 * kTaskBytes + 17, 2);
  write_text(files, "t/1", big);
  write_text(files, "t/2.gz", gzip(big));
  write_text(files, "t/3.txt.zst", zstd(big));
  PrepareOptions options = options_for({"t"});
  options.overwrite = true;
  prepare(files, options);
  EXPECT_EQ(all_documents(files, "out/c"), (std::vector<std::string>{big, big, big}));
}

TEST(Prepare, AnotherJsonKey) {
  MemoryFileSystem files;
  write_text(files, "a.jsonl", "{\"content\": \"x\", \"text\": 3}\n{\"content\": \"\"}\n");
  PrepareOptions options = options_for({"a.jsonl"});
  options.json_key = "content";
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(all_documents(files, "out/c"), (std::vector<std::string>{"x"}));
  ASSERT_EQ(result.skipped.size(), 1U);
  EXPECT_EQ(result.skipped[0].reason, "empty document");
  EXPECT_EQ(result.files, 1);
}

TEST(Prepare, LongWindowsOfZstandardAreRead) {
  ZSTD_CCtx* state = ZSTD_createCCtx();
  ASSERT_EQ(ZSTD_isError(ZSTD_CCtx_setParameter(state, ZSTD_c_compressionLevel, 1)), 0U);
  ASSERT_EQ(ZSTD_isError(ZSTD_CCtx_setParameter(state, ZSTD_c_windowLog, 28)), 0U);
  const std::string text = random_text(5000, 1);
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  ZSTD_outBuffer out{packed.data(), packed.size(), 0};
  for (const auto end : {ZSTD_e_flush, ZSTD_e_end}) {  // of a size that is not known at first
    ZSTD_inBuffer in{text.data(), end == ZSTD_e_flush ? text.size() : 0, 0};
    EXPECT_EQ(ZSTD_compressStream2(state, &out, &in, end), 0U);
  }
  ZSTD_freeCCtx(state);
  MemoryFileSystem files;
  write_text(files, "long.zst", packed.substr(0, out.pos));
  prepare(files, options_for({"long.zst"}));
  EXPECT_EQ(all_documents(files, "out/c"), std::vector<std::string>{text});
}

TEST(Prepare, BadLinesNameFileAndLine) {
  MemoryFileSystem files;
  std::string lines;
  for (int i = 0; i < 40000; ++i)
    lines += "{\"text\": \"some words, more than one task of them\"}\n";
  const auto with = [&](const char* bad) {
    write_text(files, "a.jsonl", lines + bad + "\n" + lines);
    std::string plain = preparing(files, ErrorKind::corrupt, options_for({"a.jsonl"}));
    EXPECT_TRUE(contains(plain, "a.jsonl:40001")) << plain;
    write_text(files, "a.jsonl.gz", gzip(lines + bad + "\n" + lines));
    const std::string packed = preparing(files, ErrorKind::corrupt, options_for({"a.jsonl.gz"}));
    EXPECT_TRUE(contains(packed, "a.jsonl.gz:40001")) << packed;
    return plain;
  };
  with("{\"text\": \"never ends");
  EXPECT_TRUE(contains(with("{\"text\": \"a\", \"id\": 1, \"text\": \"b\"}"),
                       "the key 'text' is given twice in one object; keep one of them"));
  with("{\"text\": \"a\", \"from\": {\"page\": 1, \"page\": 2}}");
  with("not json");
  EXPECT_TRUE(contains(with("{\"body\": \"x\"}"), "the keys 'body'"));
  EXPECT_TRUE(contains(with("{\"text\": 5}"), "'text' is of type number"));
  EXPECT_TRUE(contains(with("[1]"), "of type array"));
}

TEST(Prepare, DamagedCompressedDataIsAnError) {
  MemoryFileSystem files;
  const std::string text = random_text(300000, 3);
  for (const auto& [name, packed] :
       {std::pair<std::string, std::string>{"a.gz", gzip(text)}, {"a.zst", zstd(text)}}) {
    for (const size_t size : {packed.size() / 2, packed.size() - 1}) {
      write_text(files, name, packed.substr(0, size));
      const std::string cut = preparing(files, ErrorKind::corrupt, options_for({name}));
      EXPECT_TRUE(contains(cut, "'" + name + "' is truncated")) << cut;
    }
    write_text(files, name, "this is not compressed at all");
    const std::string other = preparing(files, ErrorKind::corrupt, options_for({name}));
    EXPECT_TRUE(contains(other, name)) << other;
  }
}

TEST(Prepare, DoesNotDependOnThreads) {
  MemoryFileSystem files;
  for (uint64_t i = 0; i < 60; ++i) {
    const std::string text = random_text(1 + random_u64(5, i) % 90000, 100 + i);
    const std::string name = "in/" + std::to_string(i);
    if (i % 5 == 0) {
      write_text(files, name + ".gz", gzip(text));
    } else if (i % 5 == 1) {
      std::string lines;
      for (size_t at = 0; at < text.size(); at += 100) {
        lines += Json{{"text", text.substr(at, 100)}}.dump() + "\n";
      }
      write_text(files, name + ".jsonl", lines);
    } else {
      write_text(files, name, text);
    }
  }
  write_text(files, "in/big", random_text(5 * kTaskBytes + 3, 7));
  write_text(files, "in/binary", std::string(100, '\0'));
  std::vector<std::string> first;
  for (const char* tokenizer : {"byte", "char"}) {
    for (const int threads : {1, 2, 7}) {
      PrepareOptions options = options_for({"in"});
      options.threads = threads;
      options.tokenizer = tokenizer;
      options.holdout_share = 0.2;
      options.overwrite = true;
      prepare(files, options);
      std::vector<std::string> bytes;
      for (const char* file : {"c.bin", "c.idx", "c.tokenizer.json", "c-validation.bin",
                               "c-validation.idx", "c-validation.tokenizer.json"}) {
        bytes.push_back(read_file(files, join_path("out", file)));
      }
      if (threads == 1) first = bytes;
      EXPECT_TRUE(bytes == first) << tokenizer << ", threads " << threads;
    }
  }
}

TEST(Prepare, TasksTileEveryFile) {
  MemoryFileSystem files;
  const std::string text = "ab\xc3\xa9\n\xe4\xb8\x96z\n";
  std::string lines;
  for (int i = 0; i < 9; ++i) lines += "{\"text\": \"" + std::string(i, 'x') + "caf\xc3\xa9\"}\n";
  class Collect final : public DocumentSink {
   public:
    void text(size_t, std::string_view piece, bool first, bool last) override {
      EXPECT_EQ(first, out.empty());
      EXPECT_NE(piece.substr(0, 1)[0] & 0xC0, 0x80);
      out += piece;
      if (last) out += "|";
    }
    void document(size_t, std::string_view text, size_t prompt_bytes) override {
      EXPECT_EQ(prompt_bytes, 0U);
      out += std::string(text) + ";";
    }
    void skip(size_t, const char*) override { FAIL(); }
    void advance(int64_t count) override { bytes += count; }
    std::string out;
    int64_t bytes = 0;
  };
  std::vector<SourceFile> sources(2);
  sources[0] = {"t", "t", static_cast<int64_t>(text.size())};
  sources[1] = {"l", "l", static_cast<int64_t>(lines.size()), Content::json_lines};
  write_text(files, "t", text);
  write_text(files, "l", lines);
  std::string expected;
  for (int64_t size = 200; size >= 4; --size) {
    Collect sink;
    for (const ReadTask& task : make_read_tasks(sources, size)) {
      read_task(files, sources, task, {"text", {}, utf8_cut}, sink);
    }
    if (expected.empty()) expected = sink.out;
    EXPECT_EQ(sink.out, expected) << size;
    EXPECT_EQ(sink.bytes, sources[0].size_bytes + sources[1].size_bytes);
  }
  EXPECT_TRUE(contains(expected, text + "|caf\xc3\xa9;xcaf")) << expected;
}

TEST(Prepare, CharTokenizerEndsDocumentsWhenThereAreSeveral) {
  MemoryFileSystem files;
  write_text(files, "in/1", "abc");
  write_text(files, "in/2", "\xc3\xa9");
  PrepareOptions options = options_for({"in"});
  options.tokenizer = "char";
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.vocabulary, 5);
  EXPECT_EQ(result.training.corpus.tokens, 6);
  EXPECT_EQ(all_documents(files, "out/c"), (std::vector<std::string>{"abc", "\xc3\xa9"}));

  options.sources = {"in/1"};
  options.tokenizer = "out/c.tokenizer.json";  // the same ids for another text
  options.prefix = "out/d";
  EXPECT_EQ(prepare(files, options).vocabulary, 5);
  write_text(files, "in/3", "xyz");
  options.sources = {"in/3"};
  options.prefix = "out/e";
  const std::string unknown = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(unknown, "'in/3': the character \"x\"")) << unknown;
  write_text(files, "in/4", "\xff\xfe");
  options.tokenizer = "char";
  options.sources = {"in/4"};
  const std::string invalid = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(invalid, "'in/4'") && contains(invalid, "UTF-8")) << invalid;
}

// Prints the speed of one thread; asserts none.
TEST(Prepare, SpeedOfTenMegabytes) {
  char folder[] = "/tmp/tutti_prepare_XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  FileSystem& files = posix_file_system();
  write_text(files, join_path(folder, "a.txt"), random_text(10'000'000, 1));
  for (const char* tokenizer : {"byte", "char"}) {
    PrepareOptions options = options_for({join_path(folder, "a.txt")});
    options.prefix = join_path(folder, "c");
    options.tokenizer = tokenizer;
    options.threads = 1;
    options.overwrite = true;
    const PrepareResult result = prepare(files, options);
    std::printf("prepare, %s, one thread: %.0f MB/s with durable files\n", tokenizer,
                result.bytes_per_second / 1e6);
    EXPECT_EQ(result.training.text_bytes, 10'000'000);
  }
  files.remove_tree(folder);
}

}  // namespace
}  // namespace tutti::data
