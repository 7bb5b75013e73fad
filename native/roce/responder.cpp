#include "roce/responder.hpp"

#include <algorithm>

#include "core/fold.hpp"

namespace genie::roce {

bool Responder::is_consistent() const {
  if (answering_ == reads_.empty() || reads_.size() > config_->reads_max) return false;
  if (answered_.size() > config_->reads_max || kept_ > early_.size()) return false;
  if (broken_ && nak_ == Nak::kNone) return false;
  return message_ == Message::kNone ||
         message_received_ <= (message_ == Message::kWrite ? message_bytes_ : kMessageMaxBytes);
}

std::uint32_t Responder::first_early() {
  for (std::uint32_t ahead = 1; ahead < early_.size(); ++ahead) {
    if (early_at(expected_psn_ + ahead).kept) return psn_add(expected_psn_, ahead);
  }
  return expected_psn_;
}

std::uint32_t Responder::lost_end() {
  std::uint32_t psn = psn_add(expected_psn_, 1);
  while (is_lost(psn) && !(early_at(psn).kept && early_at(psn).packet.psn == psn)) psn = psn_add(psn, 1);
  return psn;
}

bool Responder::was_answered(const Packet& packet) const {
  return std::ranges::any_of(answered_, [&](const Answered& read) {
    const std::int32_t after = psn_diff(packet.psn, read.psn);
    const std::uint64_t offset = std::uint64_t{config_->mtu_bytes} * static_cast<std::uint32_t>(after);
    return after >= 0 && packet.rkey == read.rkey && offset <= read.size_bytes &&
           (after == 0 || offset < read.size_bytes) && packet.remote_address == read.address + offset &&
           packet.message_bytes <= read.size_bytes - offset;
  });
}

bool Responder::can_fold() const {
  return kept_ == 0 && !is_sprayed_pair() && !trimmed_ && reads_.empty() && answered_.empty();
}

Responder::Bases Responder::fold(Fold& fold) {
  static_assert(has_size<Responder>(176));
  const Fold::Base psn = fold.packets(expected_psn_, Fold::Way::kReceived, kPsnMask);
  const Fold::Base msn = fold.base(msn_, kPsnMask);
  fold.exact(message_, starved_, nak_, ack_due_, cnp_due_, broken_, after_read_, echo_);
  if (nak_ != Nak::kNone) {
    fold.exact(nak_syndrome_);
    fold.relative(psn, nak_psn_, kPsnMask);
  }
  if (after_read_) {
    fold.relative(psn, before_read_psn_, kPsnMask);
    fold.relative(msn, before_read_msn_, kPsnMask);
  }
  if (message_ != Message::kNone) {
    fold.exact(write_address_, message_bytes_);
    // All packets of a message but the last are full.
    std::uint32_t first_psn = psn_add(static_cast<std::uint32_t>(psn.before),
                                      kPsnMask + 1 - message_received_ / config_->mtu_bytes);
    fold.either(psn, first_psn, kPsnMask);
    message_received_ =
        psn_add(static_cast<std::uint32_t>(psn.after), kPsnMask + 1 - first_psn) * config_->mtu_bytes;
    fold.latest(message_first_);
  }
  notify_.fold(fold);
  ports_.fold(fold);
  return {psn, msn};
}

}  // namespace genie::roce
