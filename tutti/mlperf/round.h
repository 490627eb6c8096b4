// Rounds of MLPerf Training in the names of folders: "v4.1", "training_results_v6.0-main", "V7".
#pragma once

#include <string>
#include <string_view>

namespace tutti::mlperf {

// The round in a path, such as "v4.1" in ".../v4.1/..." or "training_results_v4.1": the first that
// has a ruleset, else the first that looks like one; "" without any.
//
// A round is "v4.1" as a part of a folder's name (between '/', '_', '-'). The whole name of a
// folder is one also in other spellings: V4.1, v4.1.0, 4.1 (not 3.1), round4.1 and, after text such
// as training_results_, any of these; of rounds later than all rulesets also v7. They are returned
// as "v4.1". A name that says that the round was not out yet ("v7.0-draft", "v6.0 rc1") is returned
// whole: the rules of a draft are none that anybody published. Other names with numbers (v2, 12.4,
// v100, tutti-v0.2.0) are not rounds.
std::string round_of(std::string_view path);

// The ruleset of a round, "v4.1" or "v4.1.0"; "" when there is none.
std::string ruleset_of_round(std::string_view round);

}  // namespace tutti::mlperf
