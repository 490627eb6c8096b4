// Shards that cannot be read without the key (docs/formats.md, "Sealed checkpoints").
//
// A sealed shard is the shard cut into pieces of chunk_bytes - 16 bytes (the last may be shorter),
// each stored as one chunk of the file: the piece under XChaCha20-Poly1305 (libsodium), then its
// tag. The cipher's key is BLAKE2b-256 of the shard's salt, keyed with the key of the checkpoint;
// salts are random, and the nonce is the number of the chunk: no pair is used twice. A chunk is
// opened on its own, so that ranges can be read; it opens only as it was written, at its offset, in
// its shard. What ties shards to their checkpoint is the manifest, signed with the same key.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/base/file.h"
#include "tutti/checkpoint/store/manifest.h"

namespace tutti::checkpoint {

// $TUTTI_CHECKPOINT_KEY: a key file for all checkpoints that are read, whatever they say.
inline constexpr const char* kKeyVariable = "TUTTI_CHECKPOINT_KEY";

class SealKey {
 public:
  static constexpr size_t kBytes = 32;
  using Secret = std::array<unsigned char, kBytes>;

  explicit SealKey(const Secret& secret);
  ~SealKey();  // leaves nothing of it in memory
  SealKey(const SealKey&) = delete;
  SealKey& operator=(const SealKey&) = delete;

  // 16 hex digits, which reveal nothing of the key: distinguish a wrong key from damage.
  std::string id() const;
  // 64 hex digits that only the key's owner can make for this text.
  std::string signature(std::string_view text) const;

 private:
  friend class ShardSeal;
  Secret secret_;
};

// Of a file with 64 hex digits, as `openssl rand -hex 32` writes it, which its owner alone may
// read. Throws usage for anything else, and permission when the file is not there, may not be read,
// or may be by others.
std::shared_ptr<const SealKey> read_seal_key(FileSystem& files, const std::string& path);

// The key for what was sealed so: from $TUTTI_CHECKPOINT_KEY, else from where it was when the
// checkpoint was saved. Throws permission when it is not there or another one; `path` is the
// checkpoint's, for messages.
std::shared_ptr<const SealKey> find_seal_key(FileSystem& files, const SealRecord& seal,
                                             const std::string& path);

std::string random_salt();  // 64 hex digits

// The key with which a save is to be sealed, always the recipe's; null where `key_file` is empty:
// it is not sealed.
std::shared_ptr<const SealKey> save_key(FileSystem& files, const std::string& key_file);

// Signs what the manifest says, as its last act.
void sign(Manifest& manifest, const SealKey& key);
// Throws corrupt when `text`, of a sealed checkpoint's manifest, is not as an owner of the key
// wrote it.
void check_signature(std::string_view text, const SealKey& key, std::string_view path);

// The chunks of one shard. For any thread.
class ShardSeal {
 public:
  ShardSeal(const SealKey& key, std::string_view salt);
  ~ShardSeal();
  ShardSeal(const ShardSeal&) = delete;
  ShardSeal& operator=(const ShardSeal&) = delete;

  // `out` gets kSealBytes more than there are in `piece`.
  void seal(int64_t chunk, std::string_view piece, void* out) const;
  // False: it is not what was stored there. `out` gets kSealBytes less than `stored`, or nothing of
  // use.
  bool open(int64_t chunk, std::string_view stored, void* out) const;

 private:
  SealKey::Secret key_;
};

}  // namespace tutti::checkpoint
