"""What a plan of Spark consists of, read in the JVM that made it: the names of its parts, without a run of anything.

A plan is walked whole, through every field of every node, whatever it is: nothing can hide in a field that this
module does not know. The walk is a small Java class, which the compiler that Spark brings along turns into code: one
call for a plan, however large, where py4j would need ten for each node.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_plus

from attrs import frozen

from ballista_py.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JAVA = """
public class PLAN_READER implements java.util.function.BiFunction {
  public Object apply(Object what, Object root) {
    java.util.LinkedHashSet lines = new java.util.LinkedHashSet();
    if ("parts".equals(what)) parts(root, lines); else leaves(root, lines);
    StringBuilder text = new StringBuilder();
    for (java.util.Iterator it = lines.iterator(); it.hasNext();) text.append(it.next()).append('\\u0002');
    return text.toString();
  }

  private static void parts(Object it, java.util.Set lines) {
    if (it == null) return;
    if (it instanceof scala.collection.Iterable) {
      if (!(it instanceof scala.collection.Seq) && !(it instanceof scala.collection.Map)) lines.add(name(it));
      scala.collection.Iterator items = ((scala.collection.Iterable) it).iterator();
      while (items.hasNext()) parts(items.next(), lines);
    } else if (it instanceof scala.Product) {
      scala.Product node = (scala.Product) it;
      String name = name(it);
      boolean named = name.indexOf(".Unresolved") >= 0 || name.endsWith(".AliasIdentifier");
      lines.add(named && node.productArity() > 0 ? name + names(node.productElement(0)) : name);
      for (int place = 0; place < node.productArity(); place++) parts(node.productElement(place), lines);
    } else {
      lines.add(name(it));
    }
  }

  private static String names(Object it) {
    // Encoded, because a name may hold any sign, those between names and lines too.
    if (it instanceof String)
      return "\\u0001" + java.net.URLEncoder.encode((String) it, java.nio.charset.StandardCharsets.UTF_8);
    StringBuilder text = new StringBuilder();
    if (it instanceof scala.collection.Seq) {
      scala.collection.Iterator items = ((scala.collection.Iterable) it).iterator();
      while (items.hasNext()) text.append(names(items.next()));
    } else if (it instanceof org.apache.spark.sql.catalyst.FunctionIdentifier) {
      scala.Product parts = (scala.Product) it;
      for (int place = 0; place < parts.productArity(); place++) text.append(names(parts.productElement(place)));
    } else if (it instanceof scala.Some) {
      return names(((scala.Some) it).get());
    }
    return text.toString();
  }

  private static void leaves(Object it, java.util.Set lines) {
    org.apache.spark.sql.catalyst.plans.QueryPlan plan = (org.apache.spark.sql.catalyst.plans.QueryPlan) it;
    scala.collection.Iterator below = ((scala.collection.Iterable) plan.children()).iterator();
    if (!below.hasNext()) {
      StringBuilder line = new StringBuilder(name(plan));
      scala.Product node = (scala.Product) it;
      for (int place = 0; place < 2 && place < node.productArity(); place++)
        line.append("\\u0001").append(System.identityHashCode(node.productElement(place)));
      lines.add(line.toString());
    }
    while (below.hasNext()) leaves(below.next(), lines);
    scala.collection.Iterator has = ((scala.collection.Iterable) plan.expressions()).iterator();
    while (has.hasNext()) values(has.next(), lines);
    scala.collection.Iterator inside = ((scala.collection.Iterable) plan.subqueries()).iterator();
    while (inside.hasNext()) leaves(inside.next(), lines);
  }

  private static void values(Object it, java.util.Set lines) {
    scala.collection.Iterator below =
        ((scala.collection.Iterable) ((org.apache.spark.sql.catalyst.trees.TreeNode) it).children()).iterator();
    if (!below.hasNext()) lines.add(name(it));
    while (below.hasNext()) values(below.next(), lines);
  }

  private static String name(Object it) { return it.getClass().getName(); }
}
"""


@frozen(order=True)
class PlanPart:
    """One kind of thing in a plan: its Java class and, if it is a name not resolved yet, the parts of the name."""

    kind: str
    name: tuple[str, ...] = ()

    @property
    def short(self) -> str:
        """The class without its package."""
        return self.kind.rpartition(".")[2].rstrip("$")


class PlanReader:
    """Reads plans of one JVM. Safe to share between threads.

    Raises `ConfigError` for a session without a JVM of its own (Spark Connect), and where Spark brings no compiler.
    """

    def __init__(self, spark: SparkSession) -> None:
        jvm = getattr(spark, "_jvm", None)
        if jvm is None:
            raise ConfigError(
                "statements need a Spark session with its JVM: over Spark Connect nobody could see what Spark makes "
                "of a text before it runs"
            )
        try:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
            # py4j remembers methods by the name of their class: two of one name must not meet in one JVM.
            name = f"BallistaPlanReader{jvm.java.lang.System.nanoTime()}"
            compiler.cook(_JAVA.replace("PLAN_READER", name))
            self._java: Any = compiler.getClassLoader().loadClass(name).newInstance()
        except Exception as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(
                f"this Spark runs no statements, because their plans cannot be read: {reason}"
            ) from error

    def parts(self, plan: Any) -> frozenset[PlanPart]:
        """Everything that a parsed plan consists of."""
        return frozenset(_parts(self._java.apply("parts", plan)))

    def leaves(self, plan: Any) -> frozenset[PlanPart]:
        """What an analysed plan takes rows and values from; the "name" tells relations of one JVM apart."""
        return frozenset(_parts(self._java.apply("leaves", plan)))


def _parts(text: str) -> list[PlanPart]:
    lines = (line.split("\1") for line in text.split("\2") if line)
    return [PlanPart(kind, tuple(map(unquote_plus, name))) for kind, *name in lines]
