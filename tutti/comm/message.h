// Messages over a connected socket, and the proof of a shared secret (tcp_store.h).
#pragma once

#include <string>
#include <vector>

namespace tutti::comm {

// Throw io when the other side is gone or the timeout is over.
void send_message(int socket, const std::vector<std::string>& parts);
// Throws corrupt when the parts are more than 64 MiB or do not add up.
std::vector<std::string> receive_message(int socket);

void set_timeout(int socket, double seconds);  // of every send and receive; 0: none

std::string random_token();  // 32 hex digits from the system's generator
// HMAC-SHA256 of the parts under the secret, in hex.
std::string proof(const std::string& secret, const std::vector<std::string>& parts);
bool same_proof(const std::string& a, const std::string& b);  // in constant time

}  // namespace tutti::comm
