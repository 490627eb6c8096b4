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
// A connection that sends at once, and on which a host that lost its power is found out in a minute
// of silence.
void tune_connection(int socket);

std::string random_token();  // 32 hex digits from the system's generator
// HMAC-SHA256 of the parts under the secret, in hex.
std::string proof(const std::string& secret, const std::vector<std::string>& parts);
bool same_proof(const std::string& a, const std::string& b);  // in constant time

}  // namespace tutti::comm
