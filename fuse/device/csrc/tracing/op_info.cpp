#include "tracing/op_info.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

namespace fuse {

namespace {

std::unordered_map<std::string, OperatorRecord>& records() {
  static auto* table = new std::unordered_map<std::string, OperatorRecord>;
  return *table;
}

// None for an operator that is not out of the ordinary.
const OperatorRecord* record_of(const std::string& name) {
  const auto found = records().find(name);
  return found == records().end() ? nullptr : &found->second;
}

// "bernoulli" of "bernoulli_.float".
std::string base_of(const std::string& name) {
  std::string base = name.substr(0, name.find('.'));
  if (base.back() == '_') {
    base.pop_back();
  }
  return base;
}

OpInfo::Kind kind_of(const std::string& base, const c10::Argument& argument) {
  const OperatorRecord* record = record_of(base);
  if (record != nullptr &&
      std::count(record->numbers.begin(), record->numbers.end(), argument.name()) != 0) {
    return OpInfo::Kind::Scalar;
  }
  c10::TypePtr type = argument.real_type();
  if (auto optional = type->cast<c10::OptionalType>()) {
    type = optional->getElementType();
  }
  if (auto list = type->cast<c10::ListType>()) {
    type = list->getElementType();
  }
  switch (type->kind()) {
    case c10::TypeKind::FloatType: // an optimizer's step size, a dropout's probability
      // Others' operators are functions that were traced with the number.
      return base.find("::") == std::string::npos ? OpInfo::Kind::Scalar : OpInfo::Kind::Value;
    case c10::TypeKind::NumberType: return OpInfo::Kind::Scalar;
    case c10::TypeKind::ScalarTypeType: return OpInfo::Kind::Dtype;
    default: return OpInfo::Kind::Value;
  }
}

bool is_written(const c10::Argument& argument) {
  return argument.alias_info() != nullptr && argument.alias_info()->isWrite();
}

int aliased_argument(const c10::FunctionSchema& schema, const c10::Argument& result) {
  if (result.alias_info() == nullptr) {
    return -1;
  }
  const auto& sets = result.alias_info()->beforeSets();
  for (size_t index = 0; index < schema.arguments().size(); ++index) {
    const auto* alias = schema.arguments()[index].alias_info();
    if (alias != nullptr && alias->isWrite() && alias->beforeSets() == sets) {
      return static_cast<int>(index);
    }
  }
  return -1;
}

OpInfo::Draws draws_of(const OperatorRecord& record) {
  using Draws = OpInfo::Draws;
  static const auto* kinds = new std::unordered_map<std::string, Draws>{
      {"", Draws::No},
      {"elements", Draws::Elements},
      {"dropout", Draws::Dropout},
      {"samples", Draws::Samples},
      {"permutation", Draws::Permutation}};
  return kinds->at(record.draws);
}

OpInfo* build(const c10::OperatorHandle& op) {
  const c10::FunctionSchema& schema = op.schema();
  auto* info = new OpInfo;
  info->name = schema.name();
  if (info->name.rfind("aten::", 0) == 0) {
    info->name = info->name.substr(6);
  }
  if (!schema.overload_name().empty()) {
    info->name += "." + schema.overload_name();
  }
  info->base = base_of(info->name);
  for (const auto& argument : schema.arguments()) {
    const int place = static_cast<int>(info->kinds.size());
    if (argument.name() == "generator") {
      info->generator = place;
    } else if (argument.name() == "size") {
      info->size = place;
    }
    info->kinds.push_back(kind_of(info->base, argument));
    info->written.push_back(is_written(argument));
    info->nonfunctional |= info->written.back();
  }
  if (const OperatorRecord* record = record_of(info->name)) {
    for (int index : record->writes) {
      info->written[static_cast<size_t>(index)] = true;
    }
  }
  info->writes = std::find(info->written.begin(), info->written.end(), true) != info->written.end();
  const OperatorRecord* of_all = record_of(info->base);
  info->bounds = info->name == "random_.from" || info->name == "random_.to";
  info->counts_up = info->base == "arange" || info->base == "range";
  info->indexes = of_all != nullptr && of_all->is("indexes");
  info->undefined_rows = of_all != nullptr && of_all->is("undefined_rows");
  info->steps = info->writes && info->name.rfind("_fused_", 0) == 0;
  info->draws = of_all == nullptr ? OpInfo::Draws::No : draws_of(*of_all);
  for (const auto& result : schema.returns()) {
    OpInfo::Return entry;
    entry.alias = aliased_argument(schema, result);
    entry.list = result.type()->kind() == c10::TypeKind::ListType;
    info->returns.push_back(entry);
  }
  return info;
}

// What is known of every operator called so far. Keyed by the schema's address, which the
// dispatcher keeps for the life of the operator, and then may give to another one.
class Infos final : public c10::OpRegistrationListener {
 public:
  static Infos& global() {
    static Infos* infos = listening();
    return *infos;
  }

  // About 15 ns: a shared lock and one probe.
  const OpInfo& of(const c10::OperatorHandle& op) {
    const void* key = &op.schema();
    {
      const std::shared_lock<std::shared_mutex> guard(mutex_);
      const auto found = table_.find(key);
      if (found != table_.end()) {
        return *found->second;
      }
    }
    const std::unique_lock<std::shared_mutex> guard(mutex_);
    std::unique_ptr<OpInfo>& entry = table_[key];
    if (!entry) {
      entry.reset(build(op));
    }
    return *entry;
  }

  void onOperatorRegistered(const c10::OperatorHandle&) override {}
  // A program defines an operator anew, in a notebook say. Known streams point to what is known of
  // the old one, and are not met again: an operator's address is part of a call's key.
  void onOperatorDeregistered(const c10::OperatorHandle& op) override {
    if (!op.hasSchema()) {
      return;
    }
    const std::unique_lock<std::shared_mutex> guard(mutex_);
    const auto found = table_.find(&op.schema());
    if (found != table_.end()) {
      retired_.push_back(std::move(found->second));
      table_.erase(found);
    }
  }

 private:
  static Infos* listening() {
    auto infos = std::make_unique<Infos>();
    Infos* found = infos.get();
    static auto* forever = new c10::RegistrationHandleRAII(
        c10::Dispatcher::singleton().addRegistrationListener(std::move(infos)));
    (void)forever;
    return found;
  }

  std::shared_mutex mutex_; // of both
  std::unordered_map<const void*, std::unique_ptr<OpInfo>> table_;
  std::vector<std::unique_ptr<OpInfo>> retired_;
};

} // namespace

const OpInfo& OpInfo::of(const c10::OperatorHandle& op) {
  return Infos::global().of(op);
}

void OpInfo::declare(const std::string& name, OperatorRecord record) {
  records()[name] = std::move(record);
}

} // namespace fuse
