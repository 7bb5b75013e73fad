#include "congestion/control_tape.hpp"

#include <algorithm>
#include <cassert>
#include <span>

namespace genie::congestion {
namespace {

constexpr std::size_t kMost = 4096;         // entries
constexpr std::uint32_t kDroppedMost = 16;  // without a look

}  // namespace

// The entries of a period, as they come again. An instant at which a state is observed begins a period.
class ControlTape::Period {
 public:
  Period(const ControlTape& tape, TimePs from, TimePs to) : by_(to - from) {
    const auto begin =
        std::ranges::lower_bound(tape.entries_, from, {}, [](const Entry& entry) { return entry.news.now; });
    entries_ = {begin, tape.entries_.end()};
    if (entries_.empty()) return;
    const Acknowledgement& first = entries_.front().news;
    const auto packets = static_cast<std::uint64_t>(first.bytes / tape.bounds_.mtu_bytes);
    acknowledged_ = entries_.back().news.acknowledged - (first.acknowledged - packets);
  }
  std::span<const Entry> entries() const { return entries_; }
  Acknowledgement news(const Entry& entry, std::int64_t periods) const {
    Acknowledgement news = entry.news;
    news.now += by_ * periods;
    news.acknowledged += acknowledged_ * static_cast<std::uint64_t>(periods);
    news.sent += acknowledged_ * static_cast<std::uint64_t>(periods);
    return news;
  }

 private:
  TimePs by_;
  std::uint64_t acknowledged_ = 0;  // packets in a period
  std::span<const Entry> entries_;
};

void ControlTape::add(const Acknowledgement& news) {
  if (from_ == kNever) return;
  if (entries_.size() == kMost && ++dropped_ > kDroppedMost) {
    entries_ = std::vector<Entry>();
    from_ = kNever;
    return;
  }
  keep({news, ControlLimits::of(controller_, bounds_)});
}

void ControlTape::keep(const Entry& entry) {
  if (entries_.size() == kMost) {
    const auto middle = entries_.begin() + kMost / 2;
    from_ = (middle - 1)->news.now + 1;
    entries_.erase(entries_.begin(), middle);
  }
  entries_.push_back(entry);
}

void ControlTape::observed(TimePs now) {
  dropped_ = 0;
  if (from_ == kNever) from_ = now;
}

void ControlTape::fold(Fold& fold) { controller_.fold(fold, {}); }

std::int64_t ControlTape::repeats(TimePs from, TimePs to, std::int64_t most) const {
  if (from < from_) return 0;
  const Period period(*this, from, to);
  if (period.entries().empty()) return most;
  const std::unique_ptr<Controller> controller = controller_.clone();
  const ControlLimits at_end = ControlLimits::of(*controller, bounds_);
  for (std::int64_t done = 0; done < most; ++done) {
    for (const Entry& entry : period.entries()) {
      if (!ControlLimits::of(*controller, bounds_)
               .lets_pass_as(entry.limits, entry.in_flight(bounds_.mtu_bytes)))
        return done;
      controller->acknowledged(period.news(entry, done + 1));
    }
    if (!ControlLimits::of(*controller, bounds_).lets_pass_as(at_end, in_flight_)) return done;
  }
  return most;
}

// Replayed entries are kept too: a longer period has them inside.
void ControlTape::replay(TimePs from, TimePs to, std::int64_t periods) {
  const Period period(*this, from, to);
  const std::vector<Entry> again(period.entries().begin(), period.entries().end());
  if (again.empty()) return;
  const auto kept = static_cast<std::int64_t>(kMost / again.size() + 1);  // periods
  if (periods > kept) {
    entries_.clear();
    from_ = to + (to - from) * (periods - kept);
  }
  for (std::int64_t done = 0; done < periods; ++done) {
    for (const Entry& entry : again) {
      const Acknowledgement news = period.news(entry, done + 1);
      if (done >= periods - kept) keep({news, ControlLimits::of(controller_, bounds_)});
      controller_.acknowledged(news);
    }
  }
}

}  // namespace genie::congestion
