#include "congestion/control_tape.hpp"

#include <algorithm>
#include <cassert>
#include <span>
#include <utility>

#include "core/snapshot.hpp"

namespace genie::congestion {
namespace {

constexpr std::size_t kMost = 4096, kHopsMost = 8192;  // entries, and hops of their telemetry
constexpr std::uint32_t kDroppedMost = 16;             // without a look

}  // namespace

// The entries of a period, as they come again. An instant at which a state is observed begins a period.
class ControlTape::Repetition {
 public:
  Repetition(std::span<const Entry> entries, std::span<const Hop> hops, const ControlBounds& bounds,
             const Fold::Period& period)
      : by_(period.to() - period.from()), entries_(entries), hops_(hops) {
    assert(!entries.empty());
    for (const Hop& hop : hops) grown_bytes_.push_back(period.odometer_growth(hop.port));
    const Acknowledgement& first = entries_.front().news;
    const auto packets = static_cast<std::uint64_t>(first.bytes / bounds.mtu_bytes);
    acknowledged_ = entries_.back().news.acknowledged - (first.acknowledged - packets);
  }
  // Calls take(entry, news) for each entry, as it comes `periods` later, until take returns false.
  template <class Take>
  bool all_later(std::int64_t periods, Take take) const {
    const auto times = static_cast<std::uint64_t>(periods);
    Telemetry telemetry;
    std::size_t reading = 0;
    for (const Entry& entry : entries_) {
      Acknowledgement news = entry.news;
      news.now += by_ * periods;
      news.acknowledged += acknowledged_ * times;
      news.sent += acknowledged_ * times;
      for (telemetry.count = 0; telemetry.count < entry.hop_count; ++telemetry.count, ++reading) {
        Hop& hop = telemetry.hops[telemetry.count] = hops_[reading];
        hop.time += by_ * periods;
        hop.sent_bytes += grown_bytes_[reading] * times;
      }
      if (telemetry.count > 0) news.telemetry = &telemetry;
      if (!take(entry, news)) return false;
    }
    return true;
  }

 private:
  TimePs by_;
  std::uint64_t acknowledged_ = 0;  // packets in a period
  std::span<const Entry> entries_;
  std::span<const Hop> hops_;
  std::vector<std::uint64_t> grown_bytes_;  // of each hop's odometer in a period
};

void ControlTape::add(const Acknowledgement& news) {
  if (from_ == kNever) return;
  const bool is_full = entries_.size() == kMost || hops_.size() + kHopsMax > kHopsMost;
  if (is_full && ++dropped_ > kDroppedMost) {
    entries_ = std::vector<Entry>();
    hops_ = std::vector<Hop>();
    from_ = kNever;
    return;
  }
  keep(news);
}

// Keeps an acknowledgement that the controller is about to take.
void ControlTape::keep(const Acknowledgement& news) {
  Entry entry{news, ControlLimits::of(controller_, bounds_), 0};
  assert(entries_.empty() || entries_.back().news.now <= entry.news.now);
  const Telemetry* const telemetry = std::exchange(entry.news.telemetry, nullptr);
  // Readings of telemetry are rounded, so that a rate which they move does not come again. No period has
  // such a move inside.
  if (telemetry != nullptr && !entries_.empty() && entries_.back().limits.rate_bps != entry.limits.rate_bps) {
    from_ = entries_.back().news.now + 1;
    drop(entries_.size());
  }
  if (entries_.size() == kMost || hops_.size() + kHopsMax > kHopsMost) {
    const std::size_t half = (entries_.size() + 1) / 2;
    from_ = entries_[half - 1].news.now + 1;
    drop(half);
  }
  if (telemetry != nullptr) {
    entry.hop_count = telemetry->count;
    hops_.insert(hops_.end(), telemetry->hops.begin(), telemetry->hops.begin() + telemetry->count);
  }
  entries_.push_back(entry);
}

// Drops the oldest entries.
void ControlTape::drop(std::size_t entries) {
  hops_.erase(hops_.begin(), hops_.begin() + static_cast<std::ptrdiff_t>(hops_before(entries)));
  entries_.erase(entries_.begin(), entries_.begin() + static_cast<std::ptrdiff_t>(entries));
}

std::size_t ControlTape::hops_before(std::size_t entry) const {
  if (hops_.empty()) return 0;
  std::size_t hops = 0;
  for (std::size_t at = 0; at < entry; ++at) hops += entries_[at].hop_count;
  return hops;
}

void ControlTape::observed(TimePs now) {
  dropped_ = 0;
  if (from_ == kNever) from_ = now;
}

void ControlTape::fold(Fold& fold) { controller_.fold(fold, {}); }

std::size_t ControlTape::first_from(TimePs time) const {
  const auto entry_time = [](const Entry& entry) { return entry.news.now; };
  return static_cast<std::size_t>(std::ranges::lower_bound(entries_, time, {}, entry_time) -
                                  entries_.begin());
}

std::int64_t ControlTape::repeats(const Fold::Period& period, std::int64_t most) const {
  if (period.from() < from_) return 0;
  const std::size_t first = first_from(period.from());
  if (first == entries_.size()) return most;
  const std::span<const Entry> entries(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.end());
  const std::span<const Hop> hops(hops_.begin() + static_cast<std::ptrdiff_t>(hops_before(first)),
                                  hops_.end());
  const Repetition again(entries, hops, bounds_, period);
  const std::unique_ptr<Controller> controller = controller_.clone();
  const ControlLimits at_end = ControlLimits::of(*controller, bounds_);
  const auto take = [&](const Entry& entry, const Acknowledgement& news) {
    const bool is_same = ControlLimits::of(*controller, bounds_)
                             .lets_pass_as(entry.limits, entry.in_flight(bounds_.mtu_bytes));
    if (is_same) controller->acknowledged(news);
    return is_same;
  };
  for (std::int64_t done = 0; done < most; ++done) {
    if (!again.all_later(done + 1, take) ||
        !ControlLimits::of(*controller, bounds_).lets_pass_as(at_end, in_flight_))
      return done;
  }
  return most;
}

// Replayed entries are kept too: a longer period has them inside.
void ControlTape::replay(const Fold::Period& period, std::int64_t periods) {
  const std::size_t first = first_from(period.from());
  if (first == entries_.size()) return;
  const std::vector<Entry> entries(entries_.begin() + static_cast<std::ptrdiff_t>(first), entries_.end());
  const std::vector<Hop> hops(hops_.begin() + static_cast<std::ptrdiff_t>(hops_before(first)), hops_.end());
  const Repetition again(entries, hops, bounds_, period);
  const std::size_t fit = std::min(kMost / entries.size(), kHopsMost / std::max<std::size_t>(hops.size(), 1));
  const auto kept = static_cast<std::int64_t>(fit + 1);  // periods
  if (periods > kept) {
    drop(entries_.size());
    from_ = period.to() + (period.to() - period.from()) * (periods - kept);
  }
  for (std::int64_t done = 0; done < periods; ++done) {
    again.all_later(done + 1, [&](const Entry&, const Acknowledgement& news) {
      if (done >= periods - kept) keep(news);
      controller_.acknowledged(news);
      return true;
    });
  }
}

}  // namespace genie::congestion
