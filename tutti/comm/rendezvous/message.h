// Messages over a connected socket, and the proof of a shared secret (tcp_store.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::comm {

inline constexpr uint32_t kMostMessageBytes = 64 << 20;

// Throw io when the other side is gone or the timeout is over, usage when it is longer than that.
void send_message(int socket, const std::vector<std::string>& parts);
// Throws corrupt when the parts have more bytes than `most_bytes` or do not add up.
std::vector<std::string> receive_message(int socket, uint32_t most_bytes = kMostMessageBytes);

void set_timeout(int socket, double seconds);  // of every send and receive; 0: none
// For which a connection may be without any answer before it counts as lost. What is sent again
// after an interruption of a minute arrives within that.
inline constexpr int kLinkLostSeconds = 120;
// A TCP connection on which a host that lost its power, or a cut link, is found out even where no
// rank sends anything.
void end_when_lost(int socket);
// The same for all TCP connections that this process has now: for those of libraries, which have no
// option for it.
void end_all_when_lost();
// One that also sends at once.
void tune_connection(int socket);

std::string random_token();  // 32 hex digits from the system's generator
// HMAC-SHA256 of the parts under the secret, in hex.
std::string proof(const std::string& secret, const std::vector<std::string>& parts);
bool same_proof(const std::string& a, const std::string& b);  // in constant time

}  // namespace tutti::comm
