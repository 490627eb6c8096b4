#include "tutti/control/jobs/job.h"

namespace tutti::control {

DataLabel label_of(const JobRequest& request) {
  return {request.data_class, request.data_source, request.unlabelled_data};
}

void set_label(JobRequest& request, const DataLabel& label) {
  request.data_class = label.data_class;
  request.data_source = label.source;
  request.unlabelled_data = label.unlabelled;
}

Reason reason_of(Stop stop) {
  switch (stop) {
    case Stop::none: return Reason::none;
    case Stop::cancel:
    case Stop::requeue: return Reason::user_request;
    case Stop::preempt: return Reason::preempted_by;
    case Stop::time_limit: return Reason::time_limit;
    case Stop::deadline: return Reason::deadline_passed;
    case Stop::job_budget: return Reason::job_budget;
    case Stop::budget: return Reason::budget;
  }
  return Reason::none;
}

}  // namespace tutti::control
