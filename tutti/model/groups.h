// Whom a rank computes one layer with. Null where the mesh has one rank along the axis.
#pragma once

#include "tutti/comm/group.h"

namespace tutti::model {

struct Groups {
  comm::Group* tp = nullptr;  // share every matrix, and between the projections the rows
  comm::Group* cp = nullptr;  // share every sequence
  comm::Group* ep = nullptr;  // share the experts
};

}  // namespace tutti::model
