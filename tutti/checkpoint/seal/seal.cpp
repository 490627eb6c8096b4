#include "tutti/checkpoint/seal/seal.h"

#include <sodium.h>
#include <sys/stat.h>

#include <cstdlib>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kMostKeyFileBytes = 4096;

using Nonce = std::array<unsigned char, crypto_aead_xchacha20poly1305_ietf_NPUBBYTES>;

static_assert(crypto_aead_xchacha20poly1305_ietf_ABYTES == kSealBytes);
static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == SealKey::kBytes);

const unsigned char* bytes_of(std::string_view text) {
  return reinterpret_cast<const unsigned char*>(text.data());
}

std::string hex(const unsigned char* bytes, size_t size) {
  std::string out(2 * size + 1, '\0');  // with the null that it writes
  sodium_bin2hex(out.data(), out.size(), bytes, size);
  out.pop_back();
  return out;
}

// False for anything but 64 hex digits.
bool from_hex(std::string_view text, SealKey::Secret& out) {
  size_t size = 0;
  return text.size() == 2 * out.size() &&
         sodium_hex2bin(out.data(), out.size(), text.data(), text.size(), nullptr, &size,
                        nullptr) == 0 &&
         size == out.size();
}

// Keyed BLAKE2b. The purpose comes first, so that what is made for one is of no use for another.
void derive(const SealKey::Secret& key, std::string_view purpose, std::string_view text,
            unsigned char* out, size_t size) {
  crypto_generichash_state state;
  crypto_generichash_init(&state, key.data(), key.size(), size);
  crypto_generichash_update(&state, bytes_of(purpose), purpose.size());
  crypto_generichash_update(&state, bytes_of(text), text.size());
  crypto_generichash_final(&state, out, size);
  sodium_memzero(&state, sizeof(state));
}

Nonce nonce_of(int64_t chunk) {
  Nonce nonce{};
  for (size_t i = 0; i < sizeof(chunk); ++i) {
    nonce[i] = static_cast<unsigned char>(static_cast<uint64_t>(chunk) >> (8 * i));
  }
  return nonce;
}

// Of the machine's own files: those of tests, in memory, have no owner.
void refuse_where_others_read(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0 || (info.st_mode & (S_IRWXG | S_IRWXO)) == 0) return;
  fail(ErrorKind::permission,
       "the checkpoint key '{}' is open to others than its owner (mode {:03o}): chmod 600 '{}'",
       path, info.st_mode & 0777U, path);
}

void start_library() { TUTTI_CHECK(sodium_init() >= 0, "libsodium finds no random numbers"); }

}  // namespace

SealKey::SealKey(const Secret& secret) : secret_(secret) { start_library(); }

SealKey::~SealKey() { sodium_memzero(secret_.data(), secret_.size()); }

std::string SealKey::id() const {
  std::array<unsigned char, crypto_generichash_BYTES_MIN> out{};
  derive(secret_, "tutti key ", "", out.data(), out.size());
  return hex(out.data(), 8);
}

std::string SealKey::signature(std::string_view text) const {
  Secret out{};
  derive(secret_, "tutti manifest ", text, out.data(), out.size());
  return hex(out.data(), out.size());
}

std::shared_ptr<const SealKey> read_seal_key(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) {
    fail(ErrorKind::permission, "the checkpoint key '{}' is not there", path);
  }
  refuse_where_others_read(path);
  // An unchecked manifest may have named it: not everything is read.
  const bool is_small = !files.is_stream(path) && files.size_bytes(path) <= kMostKeyFileBytes;
  std::string text = is_small ? read_file(files, path) : std::string();
  SealKey::Secret secret{};
  const bool right = from_hex(trim(text), secret);
  sodium_memzero(text.data(), text.size());
  if (!right) {
    fail(ErrorKind::usage,
         "'{}' is not a checkpoint key: write 64 hex digits, as from openssl rand -hex 32", path);
  }
  auto key = std::make_shared<const SealKey>(secret);
  sodium_memzero(secret.data(), secret.size());
  return key;
}

std::shared_ptr<const SealKey> find_seal_key(FileSystem& files, const SealRecord& seal,
                                             const std::string& path) {
  const char* given = std::getenv(kKeyVariable);  // NOLINT(concurrency-mt-unsafe)
  const std::string key_file = given != nullptr && *given != '\0' ? given : seal.key_file;
  if (!files.exists(key_file)) {
    fail(ErrorKind::permission,
         "'{}' is sealed with key {}, and '{}' is not there; ${} names the key's file", path,
         seal.key_id, key_file, kKeyVariable);
  }
  auto key = read_seal_key(files, key_file);
  if (key->id() != seal.key_id) {
    fail(ErrorKind::permission,
         "'{}' is sealed with key {}, and '{}' is key {}; ${} names the file "
         "of the right one",
         path, seal.key_id, key_file, key->id(), kKeyVariable);
  }
  return key;
}

std::string random_salt() {
  start_library();
  SealKey::Secret salt{};
  randombytes_buf(salt.data(), salt.size());
  return hex(salt.data(), salt.size());
}

std::shared_ptr<const SealKey> save_key(FileSystem& files, const std::string& key_file) {
  if (key_file.empty()) return nullptr;
  if (!files.exists(key_file)) {
    fail(ErrorKind::permission,
         "checkpoint.key_file: '{}' is not there, and what is saved is to be sealed with it",
         key_file);
  }
  return read_seal_key(files, key_file);
}

void sign(Manifest& manifest, const SealKey& key) {
  manifest.signature = key.signature("");  // as long as the right one
  manifest.signature = key.signature(signed_part(format_manifest(manifest), kManifestName));
}

void check_signature(std::string_view text, const SealKey& key, std::string_view path) {
  const std::string_view part = signed_part(text, path);
  const std::string_view rest = text.substr(part.size());
  if (rest.find(key.signature(part)) == std::string_view::npos) {
    fail(ErrorKind::corrupt,
         "{}: it is not signed by an owner of key {}: changed after it was saved", path, key.id());
  }
}

ShardSeal::ShardSeal(const SealKey& key, std::string_view salt) {
  derive(key.secret_, "tutti shard ", salt, key_.data(), key_.size());
}

ShardSeal::~ShardSeal() { sodium_memzero(key_.data(), key_.size()); }

void ShardSeal::seal(int64_t chunk, std::string_view piece, void* out) const {
  crypto_aead_xchacha20poly1305_ietf_encrypt(static_cast<unsigned char*>(out), nullptr,
                                             bytes_of(piece), piece.size(), nullptr, 0, nullptr,
                                             nonce_of(chunk).data(), key_.data());
}

bool ShardSeal::open(int64_t chunk, std::string_view stored, void* out) const {
  if (stored.size() < static_cast<size_t>(kSealBytes)) return false;
  return crypto_aead_xchacha20poly1305_ietf_decrypt(
             static_cast<unsigned char*>(out), nullptr, nullptr, bytes_of(stored), stored.size(),
             nullptr, 0, nonce_of(chunk).data(), key_.data()) == 0;
}

}  // namespace tutti::checkpoint
