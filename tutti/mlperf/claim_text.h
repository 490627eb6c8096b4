// Claims as people write them: "175B 1024 H100 9.87min", "Llama 405B on 5,120 GB200s in 10 minutes
// for $50,000", "70B LoRA, 8x H200, 2.3x faster".
//
// Recognised, in any order: a model (a name of the catalog's benchmarks, or its size: 175B), a chip
// of the catalog (a plural s is fine, blanks too: "Gaudi 2", "TPU v5e"), a count in front of the
// chip (1,024, 1k, 8x, "one", "1024 accelerators"), a time (min, minutes, h, hours, s, seconds,
// days, or 7:04, minutes and seconds), a cost ($50,000, $1.2M, 50k USD), a factor (2.3x, "28%
// faster"). Other words are ignored; a second, different value for one of them is an error.
#pragma once

#include <string>

#include "tutti/mlperf/claim.h"

namespace tutti::mlperf {

// Fields that the text does not give stay as they are in `claim`. Throws usage naming the words.
void read_claim(const std::string& text, const ClaimBasis& basis, Claim& claim);

}  // namespace tutti::mlperf
