// A stage of the model as the pipeline's messages reach it.
#pragma once

#include "tutti/model/stage.h"
#include "tutti/parallel/pipeline_messages.h"

namespace tutti::parallel {

class StageInbox : public Inbox {
 public:
  // The stage outlives it.
  explicit StageInbox(model::Stage& stage) : stage_(stage) {}

  bool has_room() const override { return stage_.has_room(); }
  void enter(int64_t micro) override { stage_.enter(micro); }
  engine::Matrix input(int64_t micro) override { return stage_.input(micro); }

 private:
  model::Stage& stage_;
};

}  // namespace tutti::parallel
