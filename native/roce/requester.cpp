#include "roce/requester.hpp"

#include <algorithm>

#include "core/fold.hpp"

namespace genie::roce {

Fold::Base Requester::fold(Fold& fold) {
  const auto in_flight = static_cast<std::uint32_t>(std::max(psn_diff(sent_end_psn_, unacked_psn_), 0));
  const Fold::Base psn = fold.base(unacked_psn_, kPsnMask);
  const Fold::Base ssn = fold.base(ssn_, kPsnMask);
  fold.exact(state_, restrained_, credited_, recovering_, gap_, cursor_, since_request_, retries_);
  fold.exact(rnr_retries_, backoff_, last_syndrome_, reads_);
  for (std::uint32_t* number : {&send_psn_, &sent_end_psn_, &post_psn_, &again_psn_, &again_end_, &last_psn_})
    fold.relative(psn, *number, kPsnMask);
  if (recovering_) fold.relative(psn, recovered_psn_, kPsnMask);
  if (credited_) fold.relative(ssn, limit_ssn_, kPsnMask);
  fold.moment(deadline_);
  fold.timer(armed_);
  queue_.fold(fold, psn, ssn);
  control_.fold(fold, psn, in_flight);
  ports_.fold(fold);
  return psn;
}

}  // namespace genie::roce
