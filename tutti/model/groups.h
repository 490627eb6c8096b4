// The groups of a rank for one layer. Null if the mesh has a single rank along the axis.
#pragma once

#include "tutti/comm/group.h"

namespace tutti::model {

struct Groups {
  comm::Group* tp = nullptr;  // split every matrix, and the rows between projections
  comm::Group* cp = nullptr;  // split every sequence
  comm::Group* ep = nullptr;  // split the experts
};

}  // namespace tutti::model
