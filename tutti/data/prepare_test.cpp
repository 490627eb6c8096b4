#include "tutti/data/prepare.h"

#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "tutti/base/hash.h"
#include "tutti/base/memory_file.h"
#include "tutti/base/rng.h"
#include "tutti/data/byte_tokenizer.h"
#include "tutti/data/corpus.h"
#include "tutti/data/corpus_meta.h"
#include "tutti/data/document_reader.h"
#include "tutti/data/encode.h"
#include "tutti/data/test_support.h"
#include "tutti/data/tokenizer.h"

namespace tutti::data {
namespace {

std::string gzip(std::string_view text) {
  z_stream state{};
  EXPECT_EQ(deflateInit2(&state, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&state, text.size()) + 64, '\0');
  state.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  state.avail_in = static_cast<uInt>(text.size());
  state.next_out = reinterpret_cast<Bytef*>(out.data());
  state.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&state, Z_FINISH), Z_STREAM_END);
  out.resize(state.total_out);
  deflateEnd(&state);
  return out;
}

std::string zstd(std::string_view text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

// Text without zero bytes that does not repeat; every character is ASCII.
std::string random_text(size_t size, uint64_t key) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('!' + random_u64(key, i) % 90);
  return text;
}

std::string decoded(FileSystem& files, const std::string& prefix, int64_t document) {
  const Corpus corpus(files, prefix);
  const auto [first, count] = corpus.document_range(document);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  corpus.read(first, count, ids.data());
  return load_tokenizer(files, prefix)->decode(ids);
}

std::vector<std::string> all_documents(FileSystem& files, const std::string& prefix) {
  std::vector<std::string> texts;
  for (int64_t d = 0; d < Corpus(files, prefix).documents(); ++d) {
    texts.push_back(decoded(files, prefix, d));
  }
  return texts;
}

PrepareOptions options_for(const std::vector<std::string>& sources) {
  PrepareOptions options;
  options.sources = sources;
  options.prefix = "out/c";
  return options;
}

std::string preparing(FileSystem& files, ErrorKind kind, const PrepareOptions& options) {
  const std::string message = error_of(kind, [&] { prepare(files, options); });
  EXPECT_FALSE(corpus_exists(files, options.prefix));
  if (files.is_directory("out")) {
    EXPECT_TRUE(files.list("out").empty()) << files.list("out")[0].name;
  }
  return message;
}

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

TEST(Prepare, BadLinesNameFileAndLine) {
  MemoryFileSystem files;
  std::string lines;
  for (int i = 0; i < 40000; ++i)
    lines += "{\"text\": \"some words, more than one task of them\"}\n";
  const auto with = [&](const char* bad) {
    write_text(files, "a.jsonl", lines + bad + "\n" + lines);
    const std::string plain = preparing(files, ErrorKind::corrupt, options_for({"a.jsonl"}));
    EXPECT_TRUE(contains(plain, "a.jsonl:40001")) << plain;
    write_text(files, "a.jsonl.gz", gzip(lines + bad + "\n" + lines));
    const std::string packed = preparing(files, ErrorKind::corrupt, options_for({"a.jsonl.gz"}));
    EXPECT_TRUE(contains(packed, "a.jsonl.gz:40001")) << packed;
    return plain;
  };
  with("{\"text\": \"never ends");
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

TEST(Prepare, HoldsOutWholeDocuments) {
  MemoryFileSystem files;
  for (int i = 0; i < 400; ++i) {
    write_text(files, "in/" + std::to_string(i), "text number " + std::to_string(i));
  }
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.1;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "documents");
  const auto kept = all_documents(files, "out/c");
  const auto held = all_documents(files, "out/c-validation");
  EXPECT_EQ(kept.size() + held.size(), 400U);
  EXPECT_TRUE(held.size() > 20 && held.size() < 70) << held.size();
  std::set<std::string> both(kept.begin(), kept.end());
  both.insert(held.begin(), held.end());
  EXPECT_EQ(both.size(), 400U);
  EXPECT_EQ(load_corpus_meta(files, "out/c-validation").part, "validation");
  EXPECT_EQ(load_corpus_meta(files, "out/c").part, "training");

  // More documents move none, another place neither; another seed does.
  write_text(files, "in/more", "more");
  files.rename("in", "moved");
  options.sources = {"moved"};
  options.overwrite = true;
  prepare(files, options);
  auto again = all_documents(files, "out/c-validation");
  std::erase(again, "more");
  EXPECT_EQ(again, held);
  options.split_seed = 1;
  prepare(files, options);
  EXPECT_NE(all_documents(files, "out/c-validation"), held);
}

TEST(Prepare, JsonDocumentsAreHeldOutByTheirText) {
  MemoryFileSystem files;
  std::string lines;
  for (int i = 0; i < 300; ++i) {
    lines += "{\"text\": \"document " + std::to_string(i % 100) + "\"}\n";  // each three times
  }
  write_text(files, "a.jsonl", lines);
  PrepareOptions options = options_for({"a.jsonl"});
  options.holdout_share = 0.2;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "documents");
  const auto kept = all_documents(files, "out/c");
  const auto held = all_documents(files, "out/c-validation");
  EXPECT_EQ(kept.size() + held.size(), 300U);
  EXPECT_EQ(held.size() % 3, 0U);
  for (const std::string& text : held) {
    EXPECT_EQ(std::count(kept.begin(), kept.end(), text), 0);
  }
}

TEST(Prepare, ASingleFileIsSplitAtItsTail) {
  MemoryFileSystem files;
  const std::string text = random_text(1003, 4);
  write_text(files, "a.txt", text);
  PrepareOptions options = options_for({"a.txt"});
  options.tokenizer = "char";
  options.holdout_share = 0.1;
  const PrepareResult result = prepare(files, options);
  EXPECT_EQ(result.split, "tail");
  EXPECT_TRUE(contains(result.split_reason, "single document")) << result.split_reason;
  EXPECT_EQ(result.training.corpus.tokens, 902);  // int(1003 * 0.9)
  ASSERT_TRUE(result.validation);
  EXPECT_EQ(result.validation->corpus.tokens, 101);
  EXPECT_EQ(result.training.text_bytes, 902);
  EXPECT_EQ(result.validation->text_bytes, 101);
  EXPECT_EQ(decoded(files, "out/c", 0), text.substr(0, 902));
  EXPECT_EQ(decoded(files, "out/c-validation", 0), text.substr(902));
  const auto tokenizer = load_tokenizer(files, "out/c");
  EXPECT_EQ(tokenizer->end_of_document(), kNoToken);
  EXPECT_EQ(tokenizer->vocabulary_size(),
            static_cast<int32_t>(std::set<char>(text.begin(), text.end()).size()));
  EXPECT_EQ(files.list("out").size(), 8U);
}

TEST(Prepare, TailOfSeveralDocuments) {
  MemoryFileSystem files;
  for (const char* name : {"in/1", "in/2", "in/3"}) write_text(files, name, random_text(99, 1));
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.25;
  const PrepareResult result = prepare(files, options);  // 0.25 × 3 files < 1
  EXPECT_EQ(result.split, "tail");
  EXPECT_EQ(result.training.corpus.tokens, 225);
  EXPECT_EQ(result.training.corpus.documents, 3);
  EXPECT_EQ(result.validation->corpus.documents, 1);
  std::string joined = read_file(files, "out/c.bin") + read_file(files, "out/c-validation.bin");
  options.holdout_share = 0;
  options.prefix = "whole/c";
  prepare(files, options);
  EXPECT_EQ(joined, read_file(files, "whole/c.bin"));
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

TEST(Prepare, TroubleNamedDirectlyIsAnError) {
  MemoryFileSystem files;
  write_text(files, "binary", std::string("MZ\0", 3));
  write_text(files, "empty.gz", gzip(""));
  write_text(files, "binary.zst", zstd(std::string(9000, '\0')));
  EXPECT_TRUE(
      contains(preparing(files, ErrorKind::usage, options_for({"binary"})), "'binary' is binary"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::usage, options_for({"binary.zst"})),
                       "'binary.zst' is binary"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::usage, options_for({"empty.gz"})),
                       "'empty.gz' is empty"));
  EXPECT_TRUE(contains(preparing(files, ErrorKind::not_found, options_for({"gone"})), "gone"));
}

TEST(Prepare, FoldersSkipAndCount) {
  MemoryFileSystem files;
  write_text(files, "in/binary", std::string(9, '\0'));
  write_text(files, "in/big", random_text(2 * kTaskBytes, 1) + std::string(9, '\0'));
  write_text(files, "in/bigbinary", std::string(9, '\0') + random_text(3 * kTaskBytes, 1));
  write_text(files, "in/empty", "");
  write_text(files, "in/empty.gz", gzip(""));
  write_text(files, "in/good", "text");
  const PrepareResult result = prepare(files, options_for({"in"}));
  EXPECT_EQ(result.training.corpus.documents, 2);  // a zero byte later on is text
  EXPECT_EQ(result.files, 2);
  EXPECT_EQ(result.source_bytes, 2 * kTaskBytes + 9 + 4);
  ASSERT_EQ(result.skipped.size(), 2U);
  EXPECT_EQ(result.skipped[0].reason, "empty");
  EXPECT_EQ(result.skipped[0].count, 2);
  EXPECT_EQ(result.skipped[1].reason, "binary");
  EXPECT_EQ(result.skipped[1].count, 2);
  EXPECT_EQ(result.skipped[1].examples, (std::vector<std::string>{"in/bigbinary", "in/binary"}));

  files.remove_file("in/good");
  files.remove_file("in/big");
  PrepareOptions options = options_for({"in"});
  options.prefix = "other/c";
  const std::string nothing = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(nothing, "2 binary")) << nothing;
  EXPECT_TRUE(files.list("other").empty());
}

// Passes everything on, except that files called "secret" may not be read.
class GuardedFileSystem final : public FileSystem {
 public:
  explicit GuardedFileSystem(FileSystem& files) : files_(files) {}
  std::unique_ptr<MappedFile> map(const std::string& path) override {
    if (base_name(path) == "secret") fail(ErrorKind::permission, "cannot read '{}'", path);
    return files_.map(path);
  }
  std::unique_ptr<WritableFile> create(const std::string& p) override { return files_.create(p); }
  std::unique_ptr<WritableFile> open_append(const std::string& p) override {
    return files_.open_append(p);
  }
  bool exists(const std::string& p) override { return files_.exists(p); }
  bool is_directory(const std::string& p) override { return files_.is_directory(p); }
  int64_t size_bytes(const std::string& p) override { return files_.size_bytes(p); }
  std::vector<DirectoryEntry> list(const std::string& p) override { return files_.list(p); }
  void create_directories(const std::string& p) override { files_.create_directories(p); }
  void rename(const std::string& a, const std::string& b) override { files_.rename(a, b); }
  void remove_file(const std::string& p) override { files_.remove_file(p); }
  void remove_tree(const std::string& p) override { files_.remove_tree(p); }
  void sync_directory(const std::string& p) override { files_.sync_directory(p); }

 private:
  FileSystem& files_;
};

TEST(Prepare, UnreadableFiles) {
  MemoryFileSystem memory;
  GuardedFileSystem files(memory);
  write_text(files, "in/secret", random_text(2 * kTaskBytes, 1));
  EXPECT_TRUE(
      contains(preparing(files, ErrorKind::permission, options_for({"in/secret"})), "in/secret"));
  write_text(files, "in/open", "text");
  const PrepareResult result = prepare(files, options_for({"in"}));
  EXPECT_EQ(result.files, 1);
  EXPECT_EQ(result.skipped[0].reason, "unreadable");
  EXPECT_EQ(result.skipped[0].count, 1);
}

TEST(Prepare, RefusesToOverwriteUnlessAsked) {
  MemoryFileSystem files;
  for (int i = 0; i < 50; ++i) write_text(files, "in/" + std::to_string(i), "text");
  PrepareOptions options = options_for({"in"});
  options.holdout_share = 0.1;
  prepare(files, options);
  const std::string before = read_file(files, "out/c.idx");
  const std::string message = error_of(ErrorKind::usage, [&] { prepare(files, options); });
  EXPECT_TRUE(contains(message, "out/c.bin' exists")) << message;
  EXPECT_EQ(read_file(files, "out/c.idx"), before);
  options.overwrite = true;
  options.holdout_share = 0;
  prepare(files, options);
  EXPECT_EQ(Corpus(files, "out/c").documents(), 50);
  EXPECT_EQ(files.list("out").size(), 4U);  // the old validation part would not fit
}

TEST(Prepare, BadOptionsAreErrors) {
  MemoryFileSystem files;
  write_text(files, "a", "text");
  const auto with = [&](const auto& change) {
    PrepareOptions options = options_for({"a"});
    change(options);
    return error_of(ErrorKind::usage, [&] { prepare(files, options); });
  };
  EXPECT_TRUE(contains(with([](auto& o) { o.tokenizer = "word"; }), "byte, char"));
  EXPECT_TRUE(contains(with([](auto& o) { o.holdout_share = 1; }), "holdout share is 1"));
  EXPECT_TRUE(contains(with([](auto& o) { o.holdout_share = -0.1; }), "-0.1"));
  EXPECT_TRUE(contains(with([](auto& o) { o.split = SplitMethod::tail; }), "without a holdout"));
  EXPECT_TRUE(contains(with([](auto& o) { o.prefix = "out/"; }), "not a name"));
  EXPECT_TRUE(contains(with([](auto& o) { o.sources = {}; }), "no source"));
  EXPECT_TRUE(contains(with([](auto& o) {
                         o.holdout_share = 0.5;
                         o.split = SplitMethod::documents;
                       }),
                       "leaves nothing"));
  EXPECT_EQ(parse_split_method("tail"), SplitMethod::tail);
  EXPECT_EQ(parse_split_method("auto"), SplitMethod::automatic);
  error_of(ErrorKind::usage, [] { parse_split_method("head"); });
}

TEST(Prepare, ReportsProgressAndCanBeCancelled) {
  MemoryFileSystem files;
  write_text(files, "a", random_text(3 * kTaskBytes, 1));
  for (const char* tokenizer : {"byte", "char"}) {
    int64_t last = 0, total = 0, calls = 0;
    PrepareOptions options = options_for({"a"});
    options.overwrite = true;
    options.tokenizer = tokenizer;
    options.progress = [&](int64_t done, int64_t all) {
      EXPECT_GE(done, last);
      last = done;
      total = all;
      ++calls;
    };
    prepare(files, options);
    EXPECT_EQ(last, total);
    EXPECT_EQ(total, 3 * kTaskBytes * (std::string(tokenizer) == "char" ? 2 : 1));
    EXPECT_GE(calls, 1);
  }
  PrepareOptions options = options_for({"a"});
  options.prefix = "cancelled/c";
  options.progress = [](int64_t, int64_t) { fail(ErrorKind::usage, "stop"); };
  EXPECT_EQ(error_of(ErrorKind::usage, [&] { prepare(files, options); }), "stop");
  EXPECT_TRUE(files.list("cancelled").empty());
}

TEST(Prepare, AFullDiskLeavesNothing) {
  MemoryFileSystem files;
  write_text(files, "a", random_text(3 * kTaskBytes, 1));
  files.set_capacity(5 * kTaskBytes);
  preparing(files, ErrorKind::no_space, options_for({"a"}));
}

// Power lost at any moment, any unsynced part of it lost: the old corpus, the new one, or none that
// opens; never a mixture.
TEST(Prepare, ACrashLeavesNoHalfCorpus) {
  MemoryFileSystem files;
  for (int i = 0; i < 6; ++i) {
    write_text(files, "in/" + std::to_string(i), "old text " + std::to_string(i));
  }
  PrepareOptions options = options_for({"in"});
  options.threads = 1;
  options.holdout_share = 0.5;
  prepare(files, options);
  const auto old_training = all_documents(files, "out/c");
  const auto old_validation = all_documents(files, "out/c-validation");
  for (int i = 0; i < 6; ++i) {
    write_text(files, "in/" + std::to_string(i), "newer text " + std::to_string(i));
  }
  files.start_record();
  options.overwrite = true;
  prepare(files, options);
  const auto new_training = all_documents(files, "out/c");
  const auto new_validation = all_documents(files, "out/c-validation");
  int old_seen = 0, new_seen = 0;
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < 6; ++seed) {
      const auto after = files.crash_after(k, seed);
      if (!corpus_exists(*after, "out/c")) continue;
      const bool is_old = all_documents(*after, "out/c") == old_training;
      ASSERT_TRUE(is_old || all_documents(*after, "out/c") == new_training);
      ++(is_old ? old_seen : new_seen);
      if (!corpus_exists(*after, "out/c-validation")) {
        ASSERT_TRUE(is_old);  // the new training part comes after the new validation part
        continue;
      }
      ASSERT_EQ(all_documents(*after, "out/c-validation"),
                is_old ? old_validation : new_validation);
    }
  }
  EXPECT_GT(old_seen, 0);
  EXPECT_GT(new_seen, 0);
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
