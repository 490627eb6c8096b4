// Starting a run from the parameters of another: recipe key checkpoint.initialize_from. Only
// parameters are taken; the optimizer and the data position start afresh.
#pragma once

#include <string>

#include "tutti/base/file.h"
#include "tutti/train/trainer.h"

namespace tutti::train {

// The checkpoint that `folder` stands for: itself, or the newest valid one of a run folder or of a
// folder of step folders. Throws not_found naming what such a folder must hold.
std::string find_weights(FileSystem& files, const std::string& folder);

// Copies every parameter of the checkpoint (f32, bf16 or f16) into the trainer. Throws usage naming
// the first tensor, in forward order, that one side lacks or whose shapes differ, with both shapes
// and the key to set; and the first field of the model that differs without showing in any shape.
void load_weights(FileSystem& files, const std::string& checkpoint, Trainer& trainer);

}  // namespace tutti::train
