/** A style sheet a script imports is handed over as text. */
declare module "*.css" {
  const text: string;
  export default text;
}
