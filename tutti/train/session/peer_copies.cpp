#include "tutti/train/session/peer_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/units.h"
#include "tutti/checkpoint/store/reader.h"

namespace tutti::train {
namespace {

constexpr int64_t kMessageBytes = int64_t{16} << 20;

// The message of `bytes` bytes, as whole numbers.
engine::Vector words_of(std::vector<char>& buffer, int64_t bytes) {
  const auto size = static_cast<int64_t>(sizeof(int32_t));
  return engine::vector(buffer.data(), DType::i32, (bytes + size - 1) / size);
}

// A piece on its way from or to another rank, a message at a time.
struct Outgoing {
  checkpoint::PieceSource source;
  int64_t left;
  std::vector<char> buffer = std::vector<char>(kMessageBytes);
};
struct Incoming {
  int64_t from;
  int64_t left;
  std::unique_ptr<checkpoint::PieceSink> sink;  // null: it could not be written, and is dropped
  std::vector<char> buffer = std::vector<char>(kMessageBytes);
};

// Runs `body`; the first failure of several stays in `problem`.
template <typename Body>
bool attempt(std::string& problem, const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::peer) throw;
    if (problem.empty()) problem = error.what();
    return false;
  }
}

// The host of every rank, counted by their first ranks. Ranks that share memory are on one, unless
// they are on different nodes of Slurm.
std::vector<int> hosts_of(const RankConsensus& consensus) {
  if (consensus.world() == nullptr) return {0};
  struct Host {
    int64_t host;
    uint64_t node;
    bool operator<(const Host& other) const {
      return std::tie(host, node) < std::tie(other.host, other.node);
    }
  };
  const int here = consensus.world()->hosts()[static_cast<size_t>(consensus.rank())];
  std::map<Host, int> numbers;
  std::vector<int> hosts;
  for (const Host& one : consensus.exchange(Host{here, hash_text(peer_copies_host())})) {
    hosts.push_back(numbers.emplace(one, static_cast<int>(numbers.size())).first->second);
  }
  return hosts;
}

}  // namespace

int64_t peer_on_next_host(const std::vector<int>& hosts, int64_t rank) {
  const int here = hosts[static_cast<size_t>(rank)];
  const int count = 1 + *std::max_element(hosts.begin(), hosts.end());
  if (count == 1) return -1;
  const int64_t index_on_host = std::count(hosts.begin(), hosts.begin() + rank, here);
  std::vector<int64_t> next;
  for (size_t other = 0; other < hosts.size(); ++other) {
    if (hosts[other] == (here + 1) % count) next.push_back(static_cast<int64_t>(other));
  }
  return next[static_cast<size_t>(index_on_host) % next.size()];
}

PeerCopies::PeerCopies(FileSystem& files, std::string folder, const std::string& run_folder,
                       std::string key_file, const RankConsensus& consensus)
    : files_(files),
      folder_(std::move(folder)),
      key_file_(std::move(key_file)),
      consensus_(consensus),
      hosts_(hosts_of(consensus)) {
  if (leads_host()) {
    sweep_peer_copies(files_, parent_path(folder_));
    attempt(unusable_, [&] {
      files_.create_directories(folder_);
      // Of the machine's own files: those of tests, in memory, have no owner.
      std::error_code ignored;
      std::filesystem::permissions(folder_, std::filesystem::perms::owner_all, ignored);
      write_file_atomic(files_, join_path(folder_, kCopiesOwner), files_.resolve(run_folder));
    });
  }
  const uint64_t generation = consensus.world() == nullptr ? 0 : consensus.world()->generation();
  set_ = consensus_.of_leader(hash_text(fmt::format("{} {}", generation, wall_seconds())));
}

int64_t PeerCopies::leader_of(int host) const {
  return std::find(hosts_.begin(), hosts_.end(), host) - hosts_.begin();
}

// What stays behind costs memory, not the run.
void PeerCopies::remove(const std::string& path) {
  std::string problem;
  attempt(problem, [&] { files_.remove_tree(path); });
}

bool PeerCopies::all_agree(bool mine) {
  const auto all = consensus_.exchange(int32_t{mine});
  return std::all_of(all.begin(), all.end(), [](int32_t one) { return one != 0; });
}

std::optional<std::string> PeerCopies::first_problem(const std::string& mine) {
  const std::vector<std::string> all = consensus_.exchange_text(mine);
  const auto first =
      std::find_if(all.begin(), all.end(), [](const std::string& one) { return !one.empty(); });
  if (first == all.end()) return std::nullopt;
  return fmt::format("rank {}: {}", first - all.begin(), *first);
}

std::string PeerCopies::pass(const std::optional<Passage>& out, const std::vector<Passage>& in) {
  std::string problem;
  std::optional<Outgoing> going;
  if (out) {
    going = Outgoing{checkpoint::PieceSource(files_, folder_, out->piece), out->size.bytes};
  }
  std::vector<Incoming> coming;
  for (const Passage& one : in) {
    coming.push_back({one.rank, one.size.bytes, nullptr});
    attempt(problem, [&] {
      coming.back().sink =
          std::make_unique<checkpoint::PieceSink>(files_, folder_, one.piece, one.size.part_bytes);
    });
  }
  comm::Group* const group = consensus_.ranks().world;
  const auto pending = [](const Incoming& one) { return one.left > 0; };
  while ((going && going->left > 0) || std::any_of(coming.begin(), coming.end(), pending)) {
    std::vector<comm::Ticket> tickets;
    if (going && going->left > 0) {
      const int64_t bytes = going->source.read(going->buffer.data(), kMessageBytes);
      going->left -= bytes;
      tickets.push_back(group->send(consensus_.stream(), words_of(going->buffer, bytes),
                                    static_cast<int>(out->rank)));
    }
    for (Incoming& one : coming) {
      const int64_t bytes = std::min(one.left, kMessageBytes);
      if (bytes > 0) {
        tickets.push_back(group->receive(consensus_.stream(), words_of(one.buffer, bytes),
                                         static_cast<int>(one.from)));
      }
    }
    for (const comm::Ticket& ticket : tickets) ticket.wait(consensus_.stream());
    for (Incoming& one : coming) {
      const int64_t bytes = std::min(one.left, kMessageBytes);
      one.left -= bytes;
      if (bytes == 0 || one.sink == nullptr) continue;
      if (!attempt(problem, [&] { one.sink->append(one.buffer.data(), bytes); })) one.sink.reset();
    }
  }
  for (Incoming& one : coming) {
    if (one.sink != nullptr) attempt(problem, [&] { one.sink->finish(); });
  }
  return problem;
}

std::optional<std::string> PeerCopies::lacks_room(int64_t bytes, int64_t free_bytes) {
  struct Room {
    int64_t bytes, free;
  };
  // What lies there already leaves as new sets come.
  if (free_bytes < INT64_MAX) {
    std::string unread;
    attempt(unread, [&] {
      for (const checkpoint::Piece& piece : checkpoint::list_pieces(files_, folder_)) {
        free_bytes += checkpoint::PieceSource(files_, folder_, piece).bytes();
      }
    });
  }
  const std::vector<Room> all = consensus_.exchange(Room{bytes, free_bytes});
  // Its own ranks' parts and those of the host before it; twice, while the next set is made.
  std::vector<int64_t> wanted(static_cast<size_t>(hosts()), 0);
  std::vector<int64_t> free(wanted.size(), INT64_MAX);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const auto here = static_cast<size_t>(hosts_[rank]);
    wanted[here] += 2 * all[rank].bytes;
    free[here] = std::min(free[here], all[rank].free);
    const int64_t peer = peer_on_next_host(hosts_, static_cast<int64_t>(rank));
    if (peer >= 0) {
      wanted[static_cast<size_t>(hosts_[static_cast<size_t>(peer)])] += 2 * all[rank].bytes;
    }
  }
  for (size_t host = 0; host < wanted.size(); ++host) {
    if (wanted[host] <= free[host]) continue;
    return fmt::format("they take {} on the host of rank {}, which has {} left",
                       format_bytes(static_cast<double>(wanted[host])),
                       leader_of(static_cast<int>(host)),
                       format_bytes(static_cast<double>(free[host])));
  }
  return std::nullopt;
}

std::optional<std::string> PeerCopies::keep(const std::vector<checkpoint::TensorSource>& tensors,
                                            const checkpoint::State& state) {
  const checkpoint::Piece piece = {state.step, set_, consensus_.rank(), consensus_.size()};
  std::string problem;
  Size mine;
  attempt(problem, [&] {
    if (!unusable_.empty()) fail(ErrorKind::io, "{}", unusable_);
    // Not where the folder was cleared because the launch is over.
    const std::string owner = join_path(folder_, kCopiesOwner);
    if (!files_.exists(owner)) fail(ErrorKind::not_found, "{} is not there", owner);
    checkpoint::write_piece(files_, folder_, piece, tensors, state, key_file_);
    const checkpoint::PieceSource source(files_, folder_, piece);
    mine = {source.part_bytes(), source.bytes()};
  });
  const std::vector<Size> sizes = consensus_.exchange(mine);
  kept_bytes_ = mine.bytes;
  const bool all_wrote =
      std::all_of(sizes.begin(), sizes.end(), [](const Size& size) { return size.bytes > 0; });
  if (all_wrote && consensus_.size() > 1) {
    const int64_t peer = peer_on_next_host(hosts_, consensus_.rank());
    const auto out = peer < 0 ? std::nullopt : std::optional(Passage{piece, peer, mine});
    std::vector<Passage> in;
    for (int64_t rank = 0; rank < consensus_.size(); ++rank) {
      if (peer_on_next_host(hosts_, rank) != consensus_.rank()) continue;
      checkpoint::Piece theirs = piece;
      theirs.rank = rank;
      in.push_back({theirs, rank, sizes[static_cast<size_t>(rank)]});
      kept_bytes_ += in.back().size.bytes;
    }
    problem = pass(out, in);
  }
  std::optional<std::string> first = first_problem(problem);
  if (!first) {
    if (leads_host()) checkpoint::remove_other_pieces(files_, folder_, piece);
    return std::nullopt;
  }
  if (leads_host()) remove(checkpoint::pieces_path(folder_, piece));
  all_agree(true);  // no rank writes the next set while this one leaves
  return first;
}

std::optional<std::string> PeerCopies::find_newer(
    int64_t step, const std::function<void(const std::string&)>& warn) {
  // Of every piece its size and the hosts that have it.
  struct Offer {
    checkpoint::Piece piece;
    Size size;
  };
  struct Held {
    Size size;
    std::set<int> hosts;
  };
  std::vector<Offer> mine;
  if (leads_host()) {
    std::string unread;  // what cannot be read is not offered
    attempt(unread, [&] {
      for (const checkpoint::Piece& piece : checkpoint::list_pieces(files_, folder_)) {
        const checkpoint::PieceSource source(files_, folder_, piece);
        mine.push_back({piece, {source.part_bytes(), source.bytes()}});
      }
    });
  }
  const auto counts = consensus_.exchange(static_cast<int64_t>(mine.size()));
  std::map<checkpoint::Piece, Held> held;
  for (int64_t i = 0; i < *std::max_element(counts.begin(), counts.end()); ++i) {
    const auto index = static_cast<size_t>(i);
    const Offer none = {.piece = {.step = -1}, .size = {}};
    const auto all = consensus_.exchange(index < mine.size() ? mine[index] : none);
    for (size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank].piece.step < 0) continue;
      Held& one = held[all[rank].piece];
      one.size = all[rank].size;
      one.hosts.insert(hosts_[rank]);
    }
  }
  // The newest complete set; pieces of one set follow each other.
  std::optional<checkpoint::Piece> best;
  for (const auto& [first, _] : held) {
    if (first.rank != 0 || first.step <= step) continue;
    checkpoint::Piece each = first;
    int64_t found = 0;
    for (each.rank = 0; each.rank < first.ranks; ++each.rank) {
      found += static_cast<int64_t>(held.count(each));
    }
    if (found == first.ranks) best = first;
  }
  if (!best) return std::nullopt;
  std::string problem;
  for (checkpoint::Piece piece = *best; piece.rank < piece.ranks; ++piece.rank) {
    const Held& one = held.at(piece);
    const int64_t from = leader_of(*one.hosts.begin());
    for (int to = 0; to < hosts(); ++to) {
      if (one.hosts.count(to) > 0) continue;
      std::optional<Passage> out;
      std::vector<Passage> in;
      if (consensus_.rank() == from) out = {piece, leader_of(to), one.size};
      if (consensus_.rank() == leader_of(to)) in = {{piece, from, one.size}};
      const std::string now = pass(out, in);
      if (problem.empty()) problem = now;
    }
  }
  if (leads_host() && problem.empty()) {
    attempt(problem, [&] {
      checkpoint::Reader(files_, checkpoint::join_pieces(files_, folder_, *best)).verify_contents();
    });
  }
  if (const auto first = first_problem(problem)) {
    if (consensus_.leads()) {
      warn(fmt::format("the copies of step {} in memory are not taken: {}", best->step, *first));
    }
    return std::nullopt;
  }
  return checkpoint::pieces_path(folder_, *best);
}

void PeerCopies::forget() {
  all_agree(true);
  if (leads_host()) remove(folder_);
}

}  // namespace tutti::train
