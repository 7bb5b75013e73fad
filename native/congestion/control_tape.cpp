#include "congestion/control_tape.hpp"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "core/snapshot.hpp"

namespace genie::congestion {
namespace {

constexpr std::size_t kMost = 4096;         // entries
constexpr std::uint32_t kDroppedMost = 16;  // without a look

}  // namespace

// The entries of a period, as they come again. An instant at which a state is observed begins a period.
class ControlTape::Period {
 public:
  Period(std::span<const Entry> entries, const ControlBounds& bounds, const Fold::Period& period)
      : by_(period.to() - period.from()), entries_(entries) {
    if (entries_.empty()) return;
    for (const Entry& entry : entries_) {
      for (const Hop& hop : entry.hops) grown_bytes_.push_back(period.odometer_growth(hop.port));
    }
    const Acknowledgement& first = entries_.front().news;
    const auto packets = static_cast<std::uint64_t>(first.bytes / bounds.mtu_bytes);
    acknowledged_ = entries_.back().news.acknowledged - (first.acknowledged - packets);
  }
  // Calls take(entry, news) for each entry, as it comes `periods` later, until take returns false.
  template <class Take>
  bool all_later(std::int64_t periods, Take take) const {
    const auto times = static_cast<std::uint64_t>(periods);
    Telemetry told;
    std::size_t reading = 0;
    for (const Entry& entry : entries_) {
      Acknowledgement news = entry.news;
      news.now += by_ * periods;
      news.acknowledged += acknowledged_ * times;
      news.sent += acknowledged_ * times;
      told.count = static_cast<std::uint32_t>(entry.hops.size());
      for (std::uint32_t at = 0; at < told.count; ++at) {
        Hop& hop = told.hops[at] = entry.hops[at];
        hop.time += by_ * periods;
        hop.sent_bytes += grown_bytes_[reading++] * times;
      }
      if (told.count > 0) news.telemetry = &told;
      if (!take(entry, news)) return false;
    }
    return true;
  }

 private:
  TimePs by_;
  std::uint64_t acknowledged_ = 0;  // packets in a period
  std::span<const Entry> entries_;
  std::vector<std::uint64_t> grown_bytes_;  // of odometers in a period, by reading
};

void ControlTape::add(const Acknowledgement& news) {
  if (from_ == kNever) return;
  if (entries_.size() == kMost && ++dropped_ > kDroppedMost) {
    entries_ = std::vector<Entry>();
    from_ = kNever;
    return;
  }
  keep(entry_of(news));
}

ControlTape::Entry ControlTape::entry_of(const Acknowledgement& news) const {
  Entry entry{news, ControlLimits::of(controller_, bounds_), {}};
  if (const Telemetry* told = std::exchange(entry.news.telemetry, nullptr); told != nullptr)
    entry.hops.assign(told->hops.begin(), told->hops.begin() + told->count);
  return entry;
}

void ControlTape::keep(Entry entry) {
  if (entries_.size() == kMost) {
    const auto middle = entries_.begin() + kMost / 2;
    from_ = (middle - 1)->news.now + 1;
    entries_.erase(entries_.begin(), middle);
  }
  entries_.push_back(std::move(entry));
}

void ControlTape::observed(TimePs now) {
  dropped_ = 0;
  if (from_ == kNever) from_ = now;
}

std::span<const ControlTape::Entry> ControlTape::entries_from(TimePs time) const {
  return {std::ranges::lower_bound(entries_, time, {}, [](const Entry& entry) { return entry.news.now; }),
          entries_.end()};
}

void ControlTape::fold(Fold& fold) { controller_.fold(fold, {}); }

std::int64_t ControlTape::repeats(const Fold::Period& between, std::int64_t most) const {
  if (between.from() < from_) return 0;
  const std::span<const Entry> entries = entries_from(between.from());
  if (entries.empty()) return most;
  const Period period(entries, bounds_, between);
  const std::unique_ptr<Controller> controller = controller_.clone();
  const ControlLimits at_end = ControlLimits::of(*controller, bounds_);
  const auto take = [&](const Entry& entry, const Acknowledgement& news) {
    const bool is_same = ControlLimits::of(*controller, bounds_)
                             .lets_pass_as(entry.limits, entry.in_flight(bounds_.mtu_bytes));
    if (is_same) controller->acknowledged(news);
    return is_same;
  };
  for (std::int64_t done = 0; done < most; ++done) {
    if (!period.all_later(done + 1, take) ||
        !ControlLimits::of(*controller, bounds_).lets_pass_as(at_end, in_flight_))
      return done;
  }
  return most;
}

// Replayed entries are kept too: a longer period has them inside.
void ControlTape::replay(const Fold::Period& between, std::int64_t periods) {
  const std::span<const Entry> entries = entries_from(between.from());
  if (entries.empty()) return;
  const std::vector<Entry> again(entries.begin(), entries.end());
  const Period period(again, bounds_, between);
  const auto kept = static_cast<std::int64_t>(kMost / again.size() + 1);  // periods
  if (periods > kept) {
    entries_.clear();
    from_ = between.to() + (between.to() - between.from()) * (periods - kept);
  }
  for (std::int64_t done = 0; done < periods; ++done) {
    period.all_later(done + 1, [&](const Entry&, const Acknowledgement& news) {
      if (done >= periods - kept) keep(entry_of(news));
      controller_.acknowledged(news);
      return true;
    });
  }
}

}  // namespace genie::congestion
