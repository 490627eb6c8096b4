#include "tutti/cli/train/start_check.h"

#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/cli/data/tokenizer.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/step/initial_weights.h"
#include "tutti/train/step/teacher.h"

namespace tutti::cli {

void check_start(FileSystem& files, const spec::Recipe& recipe, const std::string& run_folder) {
  checkpoint::save_key(files, recipe.checkpoint.key_file);
  const std::string checkpoints = train::checkpoints_path(train::home_of(recipe, run_folder));
  if (checkpoint::list_checkpoints(files, checkpoints).empty()) {
    if (const std::string& base = recipe.checkpoint.initialize_from; !base.empty()) {
      train::check_weights(files, train::find_weights(files, base), recipe);
    }
    if (recipe.distill.enabled()) train::check_teacher(files, recipe);
  }
  check_tokenizer(files, recipe, run_folder);
}

}  // namespace tutti::cli
